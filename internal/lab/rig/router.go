package rig

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"net/netip"

	"github.com/floodwall/floodwall/internal/lab"
)

// nextHops is how many neighbors the routes of a router go to, as in the article of `placement`.
const nextHops = 50

// The networks of a router's links, whose routes are its own.
var (
	siteNet   = netip.MustParsePrefix("10.0.0.0/24")
	uplinkNet = netip.MustParsePrefix("10.1.0.0/24")
)

// nextHop is the i-th neighbor on a router's uplink.
func nextHop(i int) netip.Addr {
	a := uplinkNet.Addr().As4()
	a[3] = byte(2 + i%nextHops)
	return netip.AddrFrom4(a)
}

// Routes are what a router knows besides its own links.
type Routes = iter.Seq2[netip.Prefix, netip.Addr]

// NewRouter builds the n-th site of a lab as a router: what it forwards goes out to an uplink, whose host discards it. That
// one's receive thread has its turn on the same CPU when the router's sleeps.
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

// DefaultRoute is a table of one route.
func DefaultRoute(yield func(netip.Prefix, netip.Addr) bool) {
	yield(netip.PrefixFrom(netip.IPv4Unspecified(), 0), nextHop(0))
}

// FullTable is n different routes as routers in the Internet have them, most of them to a /24, with the neighbors in turn.
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

// routeBits is the length of a route, by a percentage: about those of the Internet's tables in 2025 (bgp.potaroo.net).
func routeBits(percent int) int {
	upTo := []int{60, 70, 81, 86, 91, 94, 96, 98, 100}
	for i, most := range upTo {
		if percent < most {
			return 24 - i
		}
	}
	return 0
}
