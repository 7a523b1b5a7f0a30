// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// Passes reports whether packets to an address may pass one of the devices. This is the device of the route to the address, or a device below it.
// Passes returns true if it cannot find that out.
func Passes(to netip.Addr, devices []string) bool {
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil || len(routes) == 0 || routes[0].LinkIndex == 0 {
		return true
	}
	links, err := netlink.LinkList()
	if err != nil {
		return true
	}
	passed := carriers(links, routes[0].LinkIndex)
	return slices.ContainsFunc(links, func(l netlink.Link) bool {
		return slices.Contains(devices, l.Attrs().Name) && slices.Contains(passed, l.Attrs().Index)
	})
}

// carriers returns the index of a device and the indexes of all devices below it, on which its packets arrive. Below a device are the parent of a
// VLAN, and the ports of a bridge or bond.
func carriers(links []netlink.Link, index int) []int {
	found := []int{index}
	for i := 0; i < len(found); i++ {
		for _, l := range links {
			attrs := l.Attrs()
			below := -1
			switch {
			case attrs.MasterIndex == found[i]:
				below = attrs.Index
			case attrs.Index == found[i] && l.Type() != "veth": // the parent of a veth is the veth's other end
				below = attrs.ParentIndex
			}
			if below > 0 && !slices.Contains(found, below) {
				found = append(found, below)
			}
		}
	}
	return found
}
