// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// essential is one of the rules between the services and `default: drop`. It passes traffic that a host needs to keep its address, its neighbors and
// a working path MTU. These rules come last, so any rule of the policy overrides them. RFC 4890 (for ICMPv6) and RFC 2979 (for ICMP) list the
// messages that a firewall must not drop.
type essential struct {
	name   string // of policy.EssentialNames
	suffix string // added to name if several rules have the same name
	match  policy.Match
	from   []netip.Prefix // allowed sources; nil: any
	each   uint64         // limit in packets per second for one source; 0: only the limit for all sources
	all    uint64         // limit in packets per second for all sources together
	asked  bool           // the rule exists only if the policy names it
}

// Source addresses that routers do not forward (RFC 4291, 2.5.2 and 2.5.6).
var (
	linkLocal   = netip.MustParsePrefix("fe80::/10")
	unspecified = netip.MustParsePrefix("::/128")
)

// essentials returns all essential rules. servers are the DHCP servers that the host knows. An IPv6 hop limit of 255 proves that no router has
// forwarded the packet. A link-local source proves the same (RFC 4291, 2.5.6). A hop limit of 1 proves nothing, because a distant sender can choose
// an initial value of which 1 is left.
//
// The limits allow what a busy host needs. Packets at the rate of the limits cost the host a few percent of a CPU. One source cannot use up the limit
// for all sources. For errors, fragments and echoes, which any distant host may send, a source is an IPv4 /24 or an IPv6 /48.
func essentials(servers []netip.Addr) []essential {
	port := func(n uint16) []policy.Port { return []policy.Port{{Proto: packet.ProtoUDP, First: n, Last: n}} }
	known := []netip.Prefix{}
	for _, a := range servers {
		known = append(known, netip.PrefixFrom(a, a.BitLen()))
	}
	dhcp := policy.Match{SPort: port(67), Port: port(68), Family: []uint32{packet.FamilyIPv4}}
	dhcpv6 := policy.Match{SPort: port(547), Port: port(546), Family: []uint32{packet.FamilyIPv6}}
	return []essential{
		// Neighbor solicitations and advertisements (RFC 4861, 7.1). A router solicitation may have the source ::, if the sender has no address yet.
		{name: "neighbors", match: discovery(133, 135, 136), each: 1000, all: 20_000},
		// Router advertisements and redirects come from a link-local address, RFC 4861, 6.1.2 and 8.1.
		{name: "routers", match: discovery(134, 137), from: []netip.Prefix{linkLocal}, each: 100, all: 1000},
		// RFC 2710, 3, and RFC 3810, 5 and 5.2.13.
		{name: "multicast", match: policy.Match{ICMP: icmpv6(130, 131, 132, 143), TTL: onlyTTL(1)},
			from: []netip.Prefix{unspecified, linkLocal}, each: 100, all: 1000},
		// IGMP, which is the same for IPv4 (RFC 3376, 4, and RFC 2236, 2). A switch or bridge with IGMP snooping stops the traffic of a group when
		// its queries get no answer. A querier may have any address, or 0.0.0.0. A class for the destination would cost 10 instructions for every
		// packet. Therefore the rule does not test the destination. So it cannot exclude a distant sender that chooses a TTL of which 1 is left. Only
		// the limit applies to that sender.
		{name: "multicast", suffix: "-ipv4", match: policy.Match{Proto: []uint8{packet.ProtoIGMP}, TTL: onlyTTL(1), Family: []uint32{packet.FamilyIPv4}},
			each: 100, all: 1000},
		{name: "icmp-errors", match: policy.Match{ICMP: []policy.ICMP{
			{Type: 3, Code: -1}, {Type: 11, Code: -1}, {Type: 12, Code: -1}}}, each: 1000, all: 10_000},
		{name: "icmpv6-errors", match: policy.Match{ICMP: icmpv6(1, 2, 3, 4)}, each: 1000, all: 10_000},
		// A distant server answers from a relay's address or from its own address. Another server may answer a host that has lost its lease. So no
		// field distinguishes a server from a forger. But a forger that does not know the host's servers cannot use up the limit of the known
		// servers.
		{name: "dhcp", suffix: "-known", match: dhcp, from: known, all: 20},
		{name: "dhcp", match: dhcp, all: 20},
		// Servers and relays on the link usually answer from their link-local address. RFC 8415 does not require that, and some answer from a global
		// address. A distant forger can also use a global address, so global sources have a limit of their own. The destination does not distinguish
		// servers from forgers: it may be any address of the host.
		{name: "dhcpv6", match: dhcpv6, from: []netip.Prefix{linkLocal}, all: 100},
		{name: "dhcpv6", suffix: "-global", match: dhcpv6, all: 20},
		// A later fragment has no ports. Its datagram is delivered only when the first fragment, which has the ports, has passed a rule. In iptables
		// a limit for all sources covers one family only, so each family has a rule.
		{name: essentialFragments, match: later(packet.FamilyIPv4), each: 1000, all: 10_000},
		{name: essentialFragments, suffix: "-ipv6", match: later(packet.FamilyIPv6), each: 1000, all: 10_000},
		// Echo requests from outside, and replies to this host's own echo requests.
		{name: "echo", match: policy.Match{ICMP: []policy.ICMP{{Type: 0, Code: -1}, {Type: 8, Code: -1}}}, each: 100, all: 1000, asked: true},
		{name: "echo", suffix: "-ipv6", match: policy.Match{ICMP: icmpv6(128, 129)}, each: 100, all: 1000, asked: true},
	}
}

// essentialFragments is the name of the rules for later fragments.
const essentialFragments = "fragments"

// fragmentsOff is the name of the rule that drops later fragments if the policy switches off the essential rules for fragments.
const fragmentsOff = "essential:fragments:off"

// heldSources is the largest number of sources of essential packets whose limits are kept at a time.
const heldSources = 1 << 14

// limits returns the default limits of a rule.
func (e *essential) limits() (list []policy.Over) {
	if e.each > 0 {
		by := policy.PrefixLen{V4: 32, V6: 128}
		if e.from == nil && e.match.TTL == nil {
			by = policy.PrefixLen{V4: 24, V6: 48}
		}
		list = append(list, policy.Over{Rate: e.each, Per: time.Second, Burst: e.each, From: &by, Max: heldSources})
	}
	return append(list, policy.Over{Rate: e.all, Per: time.Second, Burst: e.all})
}

// essentials adds the essential rules for whose names meant returns true. Before each of them it adds a rule that drops packets above the limits of
// the essential rule.
func (l *lowering) essentials(said []policy.Essential, servers []netip.Addr, meant func(name string) bool) {
	for _, e := range essentials(servers) {
		if !meant(e.name) {
			continue
		}
		i := slices.IndexFunc(said, func(s policy.Essential) bool { return s.Name == e.name })
		if i >= 0 && said[i].Off || i < 0 && e.asked || e.from != nil && len(e.from) == 0 {
			continue
		}
		rule := ir.Rule{Name: "essential:" + e.name + e.suffix, Kind: ir.RuleKindEssential, Match: fieldMatches(e.match)}
		if e.from != nil {
			rule.Src = []ir.AddrMatch{{Sets: []int{l.sourceSet(e.from)}}}
		}
		limited := rule
		limited.Name, limited.Verdict = rule.Name+":limited", ir.Drop
		if i >= 0 && !said[i].On {
			limited.Over = l.limits(limited.Name, said[i].Limits)
		} else {
			limited.Over = l.limits(limited.Name, e.limits())
			for _, number := range limited.Over {
				limit := &l.program.Limits[number]
				limit.Lenient = limit.Src != nil
			}
		}
		if len(limited.Over) > 0 {
			l.program.Rules = append(l.program.Rules, limited)
		}
		l.program.Rules = append(l.program.Rules, rule)
	}
}

// sourceSet returns the index of a set of prefixes. Rules with the same prefixes share the set.
func (l *lowering) sourceSet(prefixes []netip.Prefix) int {
	var ranges []policy.AddrRange
	for _, p := range prefixes {
		r := netipx.RangeOfPrefix(p)
		ranges = append(ranges, policy.AddrRange{First: r.From(), Last: r.To()})
	}
	return l.writtenSet(ranges)
}

func later(family uint32) policy.Match {
	return policy.Match{Fragment: []uint32{packet.FragmentLater}, Family: []uint32{family}}
}

// discovery matches neighbor discovery messages of the given ICMPv6 types. Their code is 0 (RFC 4861, 6.1, 7.1 and 8.1), and they are not fragmented
// (RFC 6980, 5).
func discovery(types ...uint8) policy.Match {
	list := icmpv6(types...)
	for i := range list {
		list[i].Code = 0
	}
	return policy.Match{ICMP: list, TTL: onlyTTL(255), Fragment: []uint32{packet.FragmentNone}}
}

func onlyTTL(n uint32) []policy.Range { return []policy.Range{{First: n, Last: n}} }

func icmpv6(types ...uint8) []policy.ICMP {
	var out []policy.ICMP
	for _, t := range types {
		out = append(out, policy.ICMP{V6: true, Type: t, Code: -1})
	}
	return out
}
