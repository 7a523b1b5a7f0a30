// SPDX-License-Identifier: Apache-2.0

// This file attaches programs at tc if the kernel has no TCX, which Linux has since 6.6. It uses filters of the qdisc clsact. A filter stays without a
// process, and the kernel replaces its program atomically (net/sched/cls_bpf.c, cls_bpf_change). A filter cannot be pinned: the pin of a device that
// has one is a text with the index of the device.

package datapath

import (
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/features"
)

// hasTCX reports whether the kernel has TCX.
var hasTCX = sync.OnceValue(func() bool { return features.TCX() == nil })

// hasTC reports whether the kernel has mode tc, by TCX or by clsact.
func hasTC() bool { return hasTCX() || features.Egress() == nil }

// The properties of the filter. The filter runs first, and the filters of other tools always run after it.
const (
	filterName     = "floodwall"
	filterPriority = 1
	filterHandle   = 0xf1d
)

// classifier is a filter at the ingress or at the egress of a device.
type classifier struct {
	ifindex int
	parent  uint32 // netlink.HANDLE_MIN_INGRESS or HANDLE_MIN_EGRESS
}

func ingressOf(ifindex int) classifier { return classifier{ifindex, netlink.HANDLE_MIN_INGRESS} }

func egressOf(ifindex int) classifier { return classifier{ifindex, netlink.HANDLE_MIN_EGRESS} }

// Update sets the program of the filter. It replaces an existing program.
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

// isClsact returns an error if the device has the qdisc ingress in place of clsact. A filter for leaving packets would then see entering packets.
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

// Detach removes the filter. The qdisc stays if other filters use it.
func (c classifier) Detach() error {
	if err := netlink.FilterDel(c.filter()); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	dev, err := netlink.LinkByIndex(c.ifindex)
	if err != nil {
		return nil // the device has gone
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

// Close does nothing: a filter has no file descriptor.
func (c classifier) Close() error { return nil }

// markerName is the name of the pinned text that stands for a filter.
const markerName = "classifier"

// Pin pins a text that stands for the filter.
func (c classifier) Pin(path string) error {
	return pinText(path, markerName, []byte(strconv.Itoa(c.ifindex)))
}

// loadMarker returns the filter for which a pinned text stands.
func loadMarker(path string) (c classifier, err error) {
	text, err := readText(path, markerName)
	if err != nil {
		return c, err
	}
	index, err := strconv.Atoi(string(text))
	return ingressOf(index), err
}

func (c classifier) filter() *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: c.ifindex, Parent: c.parent, Handle: filterHandle, Protocol: unix.ETH_P_ALL, Priority: filterPriority,
		},
		Name: filterName, DirectAction: true,
	}
}

// program returns the ID of the filter's program, 0 when there is no such filter or no such device.
func (c classifier) program() (ebpf.ProgramID, error) {
	dev, err := netlink.LinkByIndex(c.ifindex)
	if none := (netlink.LinkNotFoundError{}); errors.As(err, &none) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	list, err := netlink.FilterList(dev, c.parent)
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
