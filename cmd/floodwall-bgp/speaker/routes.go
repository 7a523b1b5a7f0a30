// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"fmt"
	"net/netip"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/policy"
)

// noExport is the community that keeps a route within the network that receives it (RFC 1997).
const noExport = 0xffffff01

// mostNLRI is the length of the longest FlowSpec route that is sent, in bytes including its length field (issue 3596 of osrg/gobgp).
const mostNLRI = 239

var families = map[policy.Family]bgp.Family{
	policy.IPv4Unicast: bgp.RF_IPv4_UC, policy.IPv6Unicast: bgp.RF_IPv6_UC,
	policy.IPv4FlowSpec: bgp.RF_FS_IPv4_UC, policy.IPv6FlowSpec: bgp.RF_FS_IPv6_UC,
}

// pathOf returns the route of an announcement.
func pathOf(u *policy.Upstream, a *wire.Announcement) (*apiutil.Path, error) {
	if a.Kind == wire.RTBH {
		return blackHole(u, a)
	}
	return flowPath(a)
}

// blackHole returns the route that makes routers drop all packets to an address (RFC 7999). An unspecified next hop becomes this host's address in a
// session.
func blackHole(u *policy.Upstream, a *wire.Announcement) (*apiutil.Path, error) {
	nlri, err := bgp.NewIPAddrPrefix(a.Flow.To)
	if err != nil {
		return nil, err
	}
	next, unknown := u.RTBH.NextHop4, netip.IPv4Unspecified()
	if a.Flow.To.Addr().Is6() {
		next, unknown = u.RTBH.NextHop6, netip.IPv6Unspecified()
	}
	if !next.IsValid() {
		next = unknown
	}
	p := &apiutil.Path{Family: families[a.Family()], Nlri: nlri}
	communities := append([]uint32{noExport}, u.RTBH.Communities...)
	p.Attrs = []bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(0), bgp.NewPathAttributeCommunities(communities)}
	var hop bgp.PathAttributeInterface
	if next.Is4() && p.Family == bgp.RF_IPv4_UC {
		hop, err = bgp.NewPathAttributeNextHop(next)
	} else {
		hop, err = bgp.NewPathAttributeMpReachNLRI(p.Family, []bgp.PathNLRI{{NLRI: nlri}}, next)
	}
	p.Attrs = append(p.Attrs, hop)
	return p, err
}

// flowPath returns a FlowSpec route (RFC 8955, RFC 8956).
func flowPath(a *wire.Announcement) (*apiutil.Path, error) {
	p := &apiutil.Path{Family: families[a.Family()]}
	parts, err := components(&a.Flow)
	if err != nil {
		return nil, err
	}
	nlri, err := bgp.NewFlowSpecUnicast(p.Family, parts)
	if err != nil {
		return nil, err
	}
	raw, err := nlri.Serialize()
	if err != nil {
		return nil, err
	}
	if len(raw) > mostNLRI {
		return nil, fmt.Errorf("the FlowSpec route of %s has %d bytes, more than the %d that routers take", a.Flow, len(raw), mostNLRI)
	}
	p.Nlri = nlri
	reach, err := bgp.NewPathAttributeMpReachNLRI(p.Family, []bgp.PathNLRI{{NLRI: nlri}})
	rate := bgp.NewTrafficRateExtended(0, a.Flow.Rate)
	p.Attrs = []bgp.PathAttributeInterface{
		bgp.NewPathAttributeOrigin(0), reach, bgp.NewPathAttributeExtendedCommunities([]bgp.ExtendedCommunityInterface{rate}),
	}
	return p, err
}

// components returns the components of a FlowSpec route (RFC 8955, 4.2.2), in the order of their types.
func components(f *wire.Flow) (list []bgp.FlowSpecComponentInterface, err error) {
	prefix := func(of netip.Prefix, four func(*bgp.IPAddrPrefix) bgp.FlowSpecComponentInterface, six func(*bgp.IPAddrPrefix) bgp.FlowSpecComponentInterface) {
		if !of.IsValid() || err != nil {
			return
		}
		var p *bgp.IPAddrPrefix
		if p, err = bgp.NewIPAddrPrefix(of); err != nil {
			return
		}
		if of.Addr().Is4() {
			list = append(list, four(p))
		} else {
			list = append(list, six(p))
		}
	}
	prefix(f.To, func(p *bgp.IPAddrPrefix) bgp.FlowSpecComponentInterface { return bgp.NewFlowSpecDestinationPrefix(p) },
		func(p *bgp.IPAddrPrefix) bgp.FlowSpecComponentInterface {
			return bgp.NewFlowSpecDestinationPrefix6(p, 0)
		})
	prefix(f.From, func(p *bgp.IPAddrPrefix) bgp.FlowSpecComponentInterface { return bgp.NewFlowSpecSourcePrefix(p) },
		func(p *bgp.IPAddrPrefix) bgp.FlowSpecComponentInterface { return bgp.NewFlowSpecSourcePrefix6(p, 0) })
	add := func(kind bgp.BGPFlowSpecType, items []*bgp.FlowSpecComponentItem) {
		if len(items) > 0 {
			items[len(items)-1].Op |= bgp.DEC_NUM_OP_END
			list = append(list, bgp.NewFlowSpecComponent(kind, items))
		}
	}
	var protos []*bgp.FlowSpecComponentItem
	for _, p := range f.Proto {
		protos = append(protos, bgp.NewFlowSpecComponentItem(bgp.DEC_NUM_OP_EQ, uint64(p)))
	}
	add(bgp.FLOW_SPEC_TYPE_IP_PROTO, protos)
	add(bgp.FLOW_SPEC_TYPE_DST_PORT, numbers(f.Port))
	add(bgp.FLOW_SPEC_TYPE_SRC_PORT, numbers(f.SPort))
	add(bgp.FLOW_SPEC_TYPE_ICMP_TYPE, numbers(f.ICMP))
	add(bgp.FLOW_SPEC_TYPE_TCP_FLAG, flags(f))
	add(bgp.FLOW_SPEC_TYPE_PKT_LEN, numbers(f.Length))
	if f.Fragment {
		add(bgp.FLOW_SPEC_TYPE_FRAGMENT, []*bgp.FlowSpecComponentItem{bgp.NewFlowSpecComponentItem(0, bgp.FRAG_FLAG_IS|bgp.FRAG_FLAG_FIRST)})
	}
	return list, err
}

// numbers encodes a list of ranges (RFC 8955, 4.2.1.1): one comparison each, or two that are joined by AND.
func numbers(ranges []wire.Range) (items []*bgp.FlowSpecComponentItem) {
	for _, r := range ranges {
		if r.First == r.Last {
			items = append(items, bgp.NewFlowSpecComponentItem(bgp.DEC_NUM_OP_EQ, uint64(r.First)))
			continue
		}
		items = append(items, bgp.NewFlowSpecComponentItem(bgp.DEC_NUM_OP_GT_EQ, uint64(r.First)),
			bgp.NewFlowSpecComponentItem(bgp.DEC_NUM_OP_LT_EQ|bgp.DEC_NUM_OP_AND, uint64(r.Last)))
	}
	return items
}

// flags encodes the TCP flags that must be set, and those that must not (RFC 8955, 4.2.1.2).
func flags(f *wire.Flow) (items []*bgp.FlowSpecComponentItem) {
	if f.Set != 0 {
		items = append(items, bgp.NewFlowSpecComponentItem(bgp.BITMASK_FLAG_OP_MATCH, uint64(f.Set)))
	}
	if f.Unset != 0 {
		op := uint8(bgp.BITMASK_FLAG_OP_NOT)
		if f.Set != 0 {
			op |= bgp.BITMASK_FLAG_OP_AND
		}
		items = append(items, bgp.NewFlowSpecComponentItem(op, uint64(f.Unset)))
	}
	return items
}

// RouteText returns the text of an announcement's route.
func RouteText(u *policy.Upstream, a *wire.Announcement) (string, error) {
	p, err := pathOf(u, a)
	if err != nil {
		return "", err
	}
	return routeText(a.Family(), p), nil
}

func routeText(f policy.Family, p *apiutil.Path) string {
	text := fmt.Sprintf("%s %s", f, p.Nlri)
	for _, attr := range p.Attrs {
		switch attr.GetType() {
		case bgp.BGP_ATTR_TYPE_COMMUNITIES, bgp.BGP_ATTR_TYPE_EXTENDED_COMMUNITIES, bgp.BGP_ATTR_TYPE_NEXT_HOP:
			text += " " + attr.String()
		}
	}
	return text
}
