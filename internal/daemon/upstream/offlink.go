// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/policy"
)

// Doubt removes announcements from the status if routers refuse them by the rules of BGP. It returns a text for each such router. These announcements
// are black holes whose next hop, by the policy, is not on the link to a router of another AS (RFC 4271, 5.1.3). A router can be configured to accept
// such a route, but does not report its configuration. The rule does not apply to a router that is on no link of this host.
func Doubt(u *policy.Upstream, st *wire.Status) (texts []string) {
	for i := range st.Sessions {
		s := &st.Sessions[i]
		at := slices.IndexFunc(u.Peers, func(p policy.Peer) bool { return p.Address == s.Peer })
		if at < 0 || !u.External(u.Peers[at]) {
			continue
		}
		link := linkOf(s.Peer)
		var hops []netip.Addr
		for j := range st.Announcements {
			a := &st.Announcements[j]
			hop := u.RTBH.NextHop4
			if a.Flow.To.Addr().Is6() {
				hop = u.RTBH.NextHop6
			}
			to := slices.Index(a.Peers, s.Peer)
			if a.Kind != wire.RTBH || to < 0 || !offLink(hop, link) {
				continue
			}
			a.Peers, a.Doubtful = slices.Delete(a.Peers, to, to+1), append(a.Doubtful, s.Peer)
			s.Announced--
			if !slices.Contains(hops, hop) {
				hops = append(hops, hop)
				texts = append(texts, fmt.Sprintf("black holes do not count as announced to %v: their next hop, %v, is not on the link to it, and routers refuse such routes unless they are told to take them", s.Peer, hop))
			}
		}
	}
	return texts
}

// OffLinkHint is the remedy for the problems in Doubt's texts.
const OffLinkHint = "leave `next_hop` of `rtbh` out, or name an address of the link, and have the router set its own by the community; a router with `multihop` takes the route"

// linkOf returns the prefixes of the device whose link contains an address, or none when there is no such device.
func linkOf(a netip.Addr) []netip.Prefix {
	devices, _ := net.Interfaces()
	for _, d := range devices {
		var link []netip.Prefix
		addresses, _ := d.Addrs()
		for _, is := range addresses {
			if p, err := netip.ParsePrefix(is.String()); err == nil {
				link = append(link, p.Masked())
			}
		}
		if slices.ContainsFunc(link, func(p netip.Prefix) bool { return p.Contains(a) }) {
			return link
		}
	}
	return nil
}

// offLink reports whether an address is in none of the prefixes of a link. It is false when the prefixes are unknown.
func offLink(a netip.Addr, link []netip.Prefix) bool {
	return a.IsValid() && len(link) > 0 && !a.IsLinkLocalUnicast() && !slices.ContainsFunc(link, func(p netip.Prefix) bool { return p.Contains(a) })
}
