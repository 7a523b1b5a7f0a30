// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// OtherUplinks returns devices that have a default route in any table and are not in the given list, if a device in the list also has one. A packet
// may leave by one of the two, and its answer arrive by the other. OtherUplinks leaves out tunnels, and devices whose packets pass a device in the
// list, such as a VLAN. It returns nil if routes cannot be listed.
func OtherUplinks(devices []string) (names []string) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil
	}
	routed, err := Uplinks(true)
	if err != nil {
		return nil
	}
	filtered := func(index int) bool {
		return slices.ContainsFunc(links, func(l netlink.Link) bool {
			return slices.Contains(devices, l.Attrs().Name) && slices.Contains(carriers(links, index), l.Attrs().Index)
		})
	}
	some := false
	for _, l := range links {
		switch {
		case !slices.Contains(routed, l.Attrs().Index) || l.Attrs().Flags&unix.IFF_LOOPBACK != 0:
		case filtered(l.Attrs().Index):
			some = true
		case len(l.Attrs().HardwareAddr) == 6: // packets through a tunnel get their answers through the tunnel
			names = append(names, l.Attrs().Name)
		}
	}
	if !some {
		return nil
	}
	return names
}

// Uplinks returns the indexes of the devices of default routes, without duplicates. If tables is true, it searches all tables, else only the main
// table.
func Uplinks(tables bool) (indexes []int, err error) {
	mask := uint64(netlink.RT_FILTER_DST) // routes without a destination are default routes
	if tables {
		mask |= netlink.RT_FILTER_TABLE // table 0 means all tables
	}
	add := func(index int) {
		if index != 0 && !slices.Contains(indexes, index) {
			indexes = append(indexes, index)
		}
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{}, mask)
		if err != nil {
			return nil, fmt.Errorf("listing routes: %w", err)
		}
		for _, r := range routes {
			if r.Type != unix.RTN_UNICAST { // such as unreachable, whose device is the loopback device
				continue
			}
			add(r.LinkIndex)
			for _, hop := range r.MultiPath {
				add(hop.LinkIndex)
			}
		}
	}
	return indexes, nil
}

// Decrypted returns the source networks of the packets that IPsec decrypts by policies, sorted. These packets arrive a second time, on the device
// that received them. Policies of a VTI or an xfrm interface, which have a mark or an identifier, are left out: their packets arrive on that
// interface.
func Decrypted() (from []netip.Prefix) {
	policies, err := netlink.XfrmPolicyList(netlink.FAMILY_ALL)
	if err != nil {
		return nil
	}
	for _, p := range policies {
		if p.Dir == netlink.XFRM_DIR_OUT || len(p.Tmpls) == 0 || p.Mark != nil || p.Ifid != 0 {
			continue
		}
		any := netip.IPv4Unspecified()
		if p.Tmpls[0].Dst.To4() == nil {
			any = netip.IPv6Unspecified()
		}
		network := netip.PrefixFrom(any, 0)
		if p.Src != nil {
			a, ok := netip.AddrFromSlice(p.Src.IP)
			bits, _ := p.Src.Mask.Size()
			if !ok {
				continue
			}
			network = netip.PrefixFrom(a.Unmap(), bits)
		}
		if !slices.Contains(from, network) {
			from = append(from, network)
		}
	}
	slices.SortFunc(from, netip.Prefix.Compare)
	return from
}
