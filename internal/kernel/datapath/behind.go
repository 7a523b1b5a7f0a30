package datapath

import (
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// SeenLater names the programs of others that see what leaves a device after it was noted for its answers: by conntrack (tracked), or by the
// program of ours that the device has for what leaves. Without one, it would come behind all links of TCX that are there: these run in the order in
// which they were attached, before the filters of clsact (__dev_queue_xmit and sch_handle_egress of net/core/dev.c). Where programs cannot
// be listed there are none.
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

// linksLater are those of TCX behind a program, or all others.
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
			continue // it has gone
		}
		if info, err := prog.Info(); err == nil {
			names = append(names, info.Name)
		}
		prog.Close()
	}
	return names
}

// filtersLater are the BPF programs among a device's filters for what leaves.
func filtersLater(dev netlink.Link) (names []string) {
	filters, err := netlink.FilterList(dev, netlink.HANDLE_MIN_EGRESS)
	if err != nil { // it has no clsact
		return nil
	}
	for _, f := range filters {
		if b, is := f.(*netlink.BpfFilter); is && (b.Name != filterName || b.Handle != filterHandle) {
			names = append(names, b.Name)
		}
	}
	return names
}
