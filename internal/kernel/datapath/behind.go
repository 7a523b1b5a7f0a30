// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// SeenLater returns the names of other tools' programs that see leaving packets of a device after the flow was recorded for its replies. If tracked
// is true, conntrack records the flow, and all programs at tc come later. Otherwise our program at the device's egress records it, the last link of
// TCX. The filters of clsact come later still (__dev_queue_xmit and sch_handle_egress of net/core/dev.c). If programs cannot be listed, SeenLater
// returns nil.
func SeenLater(device string, ours []*Device, tracked bool) (names []string) {
	dev, err := netlink.LinkByName(device)
	if err != nil {
		return nil
	}
	if tracked {
		there, err := link.QueryPrograms(link.QueryOptions{Target: dev.Attrs().Index, Attach: hooks[leaving]})
		if err != nil {
			return nil
		}
		var ids []ebpf.ProgramID
		for _, d := range ours {
			ids = append(ids, d.sideOf(leaving).program)
		}
		names = namesBut(ids, there.Programs)
	}
	return append(names, filtersLater(dev)...)
}

// filtersLater returns the names of other tools' BPF programs among the egress filters of a device.
func filtersLater(dev netlink.Link) (names []string) {
	filters, err := netlink.FilterList(dev, netlink.HANDLE_MIN_EGRESS)
	if err != nil { // the device has no clsact
		return nil
	}
	for _, f := range filters {
		if b, is := f.(*netlink.BpfFilter); is && (b.Name != filterName || b.Handle != filterHandle) {
			names = append(names, b.Name)
		}
	}
	return names
}
