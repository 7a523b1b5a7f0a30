package rig

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// HostRoutes reads the IPv4 routes of this process's network namespace, from the main table. Each destination of the host's routes becomes one of
// a router's neighbors: routes with the same next hop get the same neighbor.
func HostRoutes() (map[netip.Prefix]netip.Addr, error) {
	list, err := netlink.RouteListFiltered(unix.AF_INET, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("this host's routes: %w", err)
	}
	table, hops := make(map[netip.Prefix]netip.Addr, len(list)), map[string]int{}
	for _, r := range list {
		to := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if r.Dst != nil {
			addr, _ := netip.AddrFromSlice(r.Dst.IP.To4())
			bits, _ := r.Dst.Mask.Size()
			to = netip.PrefixFrom(addr, bits)
		}
		if ofRouter(to) {
			continue
		}
		place := fmt.Sprint(r.LinkIndex, r.Gw, r.MultiPath)
		if _, known := hops[place]; !known {
			hops[place] = len(hops)
		}
		table[to] = nextHop(hops[place])
	}
	return table, nil
}

// ofRouter reports whether a route would replace a route to one of the router's own links.
func ofRouter(p netip.Prefix) bool {
	return p.Bits() >= siteNet.Bits() && (p.Overlaps(siteNet) || p.Overlaps(uplinkNet))
}
