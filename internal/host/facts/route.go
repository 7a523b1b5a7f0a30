package facts

import (
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// Passes reports whether packets to an address may pass one of the devices: the one that the route to the address goes out of,
// or one that carries it. Where that cannot be told they may.
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

// carriers are the indexes of a device and of all below it that its packets come in by: the parent of a VLAN, the
// ports of a bridge or bond.
func carriers(links []netlink.Link, index int) []int {
	found := []int{index}
	for i := 0; i < len(found); i++ {
		for _, l := range links {
			attrs := l.Attrs()
			below := -1
			switch {
			case attrs.MasterIndex == found[i]:
				below = attrs.Index
			case attrs.Index == found[i] && l.Type() != "veth": // whose parent is its other end
				below = attrs.ParentIndex
			}
			if below > 0 && !slices.Contains(found, below) {
				found = append(found, below)
			}
		}
	}
	return found
}
