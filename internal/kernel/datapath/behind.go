package datapath

import (
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// SeenLater returns the names of other tools' programs that see leaving packets of a device after the flow was recorded for its replies. If tracked
// is true, conntrack records the flow, else our program at the device's egress does. If our program is not attached yet, it would come after all
// present links of TCX: links run in the order in which they were attached, and before the filters of clsact (__dev_queue_xmit and sch_handle_egress
// of net/core/dev.c). If programs cannot be listed, SeenLater returns nil.
func SeenLater(device string, ours []*Device, tracked bool) (names []string) {
	dev, err := netlink.LinkByName(device)
	if err != nil {
		return nil
	}
	var own ebpf.ProgramID
	if i := slices.IndexFunc(ours, func(d *Device) bool { return d.Name == device }); i >= 0 {
		own = ours[i].sideOf(leaving).program
	}
	if tracked || own != 0 {
		names = linksLater(dev.Attrs().Index, own, tracked)
	}
	return append(names, filtersLater(dev)...)
}

// linksLater returns the names of the programs of the TCX links after the program own. If `all` is true, it returns the names for all links except that
// of own.
func linksLater(ifindex int, own ebpf.ProgramID, all bool) (names []string) {
	there, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: ebpf.AttachTCXEgress})
	if err != nil {
		return nil
	}
	behind := all
	for _, p := range there.Programs {
		if p.ID == own {
			behind = true
			continue
		}
		if !behind {
			continue
		}
		prog, err := ebpf.NewProgramFromID(p.ID)
		if err != nil {
			continue // the program has gone
		}
		if info, err := prog.Info(); err == nil {
			names = append(names, info.Name)
		}
		prog.Close()
	}
	return names
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
