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

// essential is one of the rules between the services and `default: drop`: traffic that a host needs to keep its address, its neighbors and
// a working path MTU. They come last, so any rule of the policy overrides them. RFC 4890 for ICMPv6 and RFC 2979 for ICMP say which
// messages a firewall must not drop.
type essential struct {
	name   string // of policy.EssentialNames
	suffix string // of the rule's name, where a name has several
	match  policy.Match
	from   []netip.Prefix // which sources it may have; nil: any
	each   uint64         // packets a second of one source at most, 0: as many as all may send
	all    uint64         // of all sources together
	asked  bool           // it is there only where the policy names it
}

// Sources whose packets no router forwards (RFC 4291, 2.5.2 and 2.5.6).
var (
	linkLocal   = netip.MustParsePrefix("fe80::/10")
	unspecified = netip.MustParsePrefix("::/128")
)

// essentials are all of them, with the DHCP servers that the host knows. An IPv6 hop limit of 255 says that no router has passed the packet on. Routers pass none with a
// link-local source either (RFC 4291, 2.5.6), while a hop limit of 1 can be arranged by a sender far away.
//
// The limits leave what a busy host needs, and cost it no more than some percent of a CPU when they are exhausted. One
// source cannot use up what all have together: an IPv4 /24 or IPv6 /48 for errors, fragments and echoes, which anybody may send from
// far away.
func essentials(servers []netip.Addr) []essential {
	port := func(n uint16) []policy.Port { return []policy.Port{{Proto: packet.ProtoUDP, First: n, Last: n}} }
	known := []netip.Prefix{}
	for _, a := range servers {
		known = append(known, netip.PrefixFrom(a, a.BitLen()))
	}
	dhcp := policy.Match{SPort: port(67), Port: port(68), Family: []uint32{packet.FamilyIPv4}}
	dhcpv6 := policy.Match{SPort: port(547), Port: port(546), Family: []uint32{packet.FamilyIPv6}}
	return []essential{
		// Solicitations and advertisements, RFC 4861, 7.1. A router solicitation may come from ::, which has no address yet.
		{name: "neighbors", match: discovery(133, 135, 136), each: 1000, all: 20_000},
		// Router advertisements and redirects come from a link-local address, RFC 4861, 6.1.2 and 8.1.
		{name: "routers", match: discovery(134, 137), from: []netip.Prefix{linkLocal}, each: 100, all: 1000},
		// RFC 2710, 3, and RFC 3810, 5 and 5.2.13.
		{name: "multicast", match: policy.Match{ICMP: icmpv6(130, 131, 132, 143), TTL: onlyTTL(1)},
			from: []netip.Prefix{unspecified, linkLocal}, each: 100, all: 1000},
		// The same of IPv4, RFC 3376, 4, and RFC 2236, 2: without an answer to its queries, a switch or bridge that listens ends a group's traffic.
		// Queriers have any address, or none. A class of the destination would cost all packets 10 instructions, so a sender far away who arranges
		// the TTL is not told apart; the limit holds him.
		{name: "multicast", suffix: "-ipv4", match: policy.Match{Proto: []uint8{packet.ProtoIGMP}, TTL: onlyTTL(1), Family: []uint32{packet.FamilyIPv4}},
			each: 100, all: 1000},
		{name: "icmp-errors", match: policy.Match{ICMP: []policy.ICMP{
			{Type: 3, Code: -1}, {Type: 11, Code: -1}, {Type: 12, Code: -1}}}, each: 1000, all: 10_000},
		{name: "icmpv6-errors", match: policy.Match{ICMP: icmpv6(1, 2, 3, 4)}, each: 1000, all: 10_000},
		// A distant server answers from a relay's address or its own, and another server may answer a host that has lost its lease. So
		// nothing tells a server from a forger. A forger who does not know the host's servers does not use up their limit.
		{name: "dhcp", suffix: "-known", match: dhcp, from: known, all: 20},
		{name: "dhcp", match: dhcp, all: 20},
		// Servers and relays on the link usually answer from their link-local address. RFC 8415 does not say so, and some answer from a global
		// one. A forger far away can have a global one, too, and has a limit of his own. The destination does not tell them apart: it
		// may be any address of the host.
		{name: "dhcpv6", match: dhcpv6, from: []netip.Prefix{linkLocal}, all: 100},
		{name: "dhcpv6", suffix: "-global", match: dhcpv6, all: 20},
		// A later fragment has no ports. Its datagram is delivered only when the first fragment, which has them, has passed a rule.
		// iptables has a limit for all of one family only, so there is a rule for each.
		{name: essentialFragments, match: later(packet.FamilyIPv4), each: 1000, all: 10_000},
		{name: essentialFragments, suffix: "-ipv6", match: later(packet.FamilyIPv6), each: 1000, all: 10_000},
		// Requests from outside, and the answers to those of this host.
		{name: "echo", match: policy.Match{ICMP: []policy.ICMP{{Type: 0, Code: -1}, {Type: 8, Code: -1}}}, each: 100, all: 1000, asked: true},
		{name: "echo", suffix: "-ipv6", match: policy.Match{ICMP: icmpv6(128, 129)}, each: 100, all: 1000, asked: true},
	}
}

// essentialFragments is the name of the rules for later fragments.
const essentialFragments = "fragments"

// fragmentsOff is the name of the rule in place of these where the policy switches them off.
const fragmentsOff = "essential:fragments:off"

// heldSources is the number of sources of essential packets whose limits are kept at a time.
const heldSources = 1 << 14

// limits are the usual limits of a rule.
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

// essentials adds those of the rules that are meant, each behind a rule that drops packets above its limits.
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

// sourceSet returns a set of prefixes, which rules with the same ones share.
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

// discovery are messages of neighbor discovery of some types. Their code is 0 (RFC 4861, 6.1, 7.1 and 8.1), and they are in no fragment
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
