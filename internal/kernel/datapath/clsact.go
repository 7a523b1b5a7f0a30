// This file attaches the program for what leaves where the kernel has no TCX, which Linux has since 6.6: as a filter of the qdisc clsact,
// which stays without a process, too, and whose program the kernel changes in one step (net/sched/cls_bpf.c, cls_bpf_change).

package datapath

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/features"
)

// hasTCX reports whether the kernel has TCX.
var hasTCX = sync.OnceValue(func() bool { return features.TCX() == nil })

// The filter. It comes first, and always lets those of others go on.
const (
	filterName     = "floodwall"
	filterPriority = 1
	filterHandle   = 0xf1d
)

// classifier is a filter at egress of a device.
type classifier struct{ ifindex int }

// Update gives the device the program, in place of the one that it has.
func (c classifier) Update(prog *ebpf.Program) error {
	err := netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: c.ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}})
	if errors.Is(err, unix.EEXIST) {
		err = c.isClsact()
	}
	if err != nil {
		return fmt.Errorf("qdisc clsact: %w", err)
	}
	f := c.filter()
	f.Fd = prog.FD()
	return netlink.FilterReplace(f)
}

// isClsact is an error where another qdisc is in the place of clsact: a filter for what leaves would see what enters there.
func (c classifier) isClsact() error {
	dev, err := netlink.LinkByIndex(c.ifindex)
	if err != nil {
		return err
	}
	list, err := netlink.QdiscList(dev)
	if err != nil {
		return err
	}
	for _, q := range list {
		if q.Attrs().Parent == netlink.HANDLE_CLSACT && q.Type() != "clsact" {
			return fmt.Errorf("%s has qdisc %s in its place: replace it, `tc qdisc replace dev %[1]s clsact`, and its filters go on", dev.Attrs().Name, q.Type())
		}
	}
	return nil
}

// Detach removes the filter. The qdisc stays if others have filters there.
func (c classifier) Detach() error {
	if err := netlink.FilterDel(c.filter()); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	dev, err := netlink.LinkByIndex(c.ifindex)
	if err != nil {
		return nil // it has gone
	}
	for _, parent := range []uint32{netlink.HANDLE_MIN_EGRESS, netlink.HANDLE_MIN_INGRESS} {
		if left, err := netlink.FilterList(dev, parent); err != nil || len(left) > 0 {
			return nil
		}
	}
	return netlink.QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: c.ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}})
}

// Close does nothing: no descriptor holds a filter.
func (c classifier) Close() error { return nil }

func (c classifier) filter() *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: c.ifindex, Parent: netlink.HANDLE_MIN_EGRESS, Handle: filterHandle, Protocol: unix.ETH_P_ALL, Priority: filterPriority,
		},
		Name: filterName, DirectAction: true,
	}
}

// program is that of the filter, 0 when there is none.
func (c classifier) program() (ebpf.ProgramID, error) {
	dev, err := netlink.LinkByIndex(c.ifindex)
	if err != nil {
		return 0, err
	}
	list, err := netlink.FilterList(dev, netlink.HANDLE_MIN_EGRESS)
	if err != nil {
		return 0, err
	}
	for _, f := range list {
		if b, ok := f.(*netlink.BpfFilter); ok && b.Name == filterName && b.Handle == filterHandle {
			return ebpf.ProgramID(b.Id), nil
		}
	}
	return 0, nil
}
