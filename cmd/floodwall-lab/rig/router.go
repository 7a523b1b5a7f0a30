// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/lab"
)

// nextHops is the number of neighbors that the routes of a router lead to. The article of `placement` has the same number.
const nextHops = 50

// The networks of a router's links. The routes to them are the router's own.
var (
	siteNet   = netip.MustParsePrefix("10.0.0.0/24")
	uplinkNet = netip.MustParsePrefix("10.1.0.0/24")
)

// nextHop returns the i-th neighbor on a router's uplink.
func nextHop(i int) netip.Addr {
	a := uplinkNet.Addr().As4()
	a[3] = byte(2 + i%nextHops)
	return netip.AddrFrom4(a)
}

// Routes are the routes of a router, without those to its own links.
type Routes = iter.Seq2[netip.Prefix, netip.Addr]

// NewRouter builds the n-th site of a lab as a router. It forwards to an uplink, whose host discards the packets. The receive thread of that host
// runs on the same CPU while the router's sleeps.
func NewRouter(l *lab.Lab, n int, table Routes) (*Site, error) {
	s, err := NewSite(l, n)
	if err != nil {
		return nil, err
	}
	uplink, err := l.Host(fmt.Sprintf("uplink%d", n))
	if err != nil {
		return nil, err
	}
	from := lab.EndOptions{Addrs: []netip.Prefix{netip.PrefixFrom(uplinkNet.Addr().Next(), 24)}}
	to := lab.EndOptions{CPU: lab.OnCPU(ReceiverCPU), Urgent: true}
	for i := range nextHops {
		to.Addrs = append(to.Addrs, netip.PrefixFrom(nextHop(i), 24))
	}
	up, _, err := l.Connect(s.Server, uplink, lab.LinkOptions{A: from, B: to})
	if err != nil {
		return nil, err
	}
	if err := s.Server.Router(); err != nil {
		return nil, err
	}
	return s, s.Server.Routes(up, table)
}

// DefaultRoute returns a table of one route.
func DefaultRoute(yield func(netip.Prefix, netip.Addr) bool) {
	yield(netip.PrefixFrom(netip.IPv4Unspecified(), 0), nextHop(0))
}

// FullTable returns n different routes like those of Internet routers. Most lead to a /24. Their next hops are the neighbors in turn.
func FullTable(n int) Routes {
	return func(yield func(netip.Prefix, netip.Addr) bool) {
		r := rand.New(rand.NewPCG(Seed, 8))
		seen := make(map[netip.Prefix]bool, n)
		for len(seen) < n {
			v := r.Uint32()
			p := netip.PrefixFrom(Addr4(v), routeBits(r.IntN(100))).Masked()
			if !Unicast4(v) || seen[p] {
				continue
			}
			seen[p] = true
			if !yield(p, nextHop(len(seen))) {
				return
			}
		}
	}
}

// routeBits returns the prefix length of a route for a percentage, about as in the Internet's tables in 2025 (bgp.potaroo.net).
func routeBits(percent int) int {
	upTo := []int{60, 70, 81, 86, 91, 94, 96, 98, 100}
	for i, most := range upTo {
		if percent < most {
			return 24 - i
		}
	}
	return 0
}

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
