// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// checks adds the checks of a stage. They are in order, because the first check that a packet fails is the reason. Checks that only count follow
// those that drop, in a chain of their own. A packet leaves that chain at the first check that counts it.
func (f *familyBuilder) checks(t *table, s plan.Stage) {
	f.passing = false
	var observed []packet.Check
	for c := range packet.NumChecks {
		switch {
		case f.pl.CheckStage(c) != s:
		case f.pl.Program.Checks.Has(c):
			f.writeCheck(t, c, ir.Drop)
		case f.pl.Program.Observed.Has(c):
			observed = append(observed, c)
		}
	}
	f.byProtocol(t, t.at)
	if observed == nil {
		return
	}
	own := t.chain(f.chainName("OBSERVED"))
	t.at.add("-j %s", own.name)
	main := t.at
	t.at, f.passing = own, true
	for _, c := range observed {
		f.writeCheck(t, c, ir.Pass)
	}
	t.at = main
}

func (f *familyBuilder) writeCheck(t *table, c packet.Check, v ir.Verdict) {
	mark := lineMark{comment: "check:" + c.String(), reason: c.String()}
	for _, condition := range f.check(c) {
		if f.pl.CheckStage(c) == plan.StageFilter { // the rule for replies comes before this check
			condition = condition.and(f.answersNone())
		}
		f.condition(t, &ir.Rule{Name: c.String(), Verdict: v}, condition, mark)
		f.out.Checks[c] = mark.comment
	}
}

// left returns the enabled checks that are not made, or not for all packets.
func (b *builder) left() (list []plan.LeftCheck) {
	for c := range packet.NumChecks {
		if why, left := checksLeft[c]; left && (b.pl.Program.Checks | b.pl.Program.Observed).Has(c) {
			list = append(list, plan.LeftCheck{Check: c, Why: why})
		}
	}
	return list
}

// check returns the conditions that match packets that fail a check, as far as iptables can test the check.
func (f *familyBuilder) check(c packet.Check) (out []condition) {
	if c == packet.BogonSource {
		return []condition{f.bogon()}
	}
	for _, r := range f.checkRules(c) {
		out = append(out, f.conditions(&r)...)
	}
	if lines := checkLines[c][f.family]; lines != nil {
		out = append(out, condition{any: lines})
	}
	if c == packet.TinyFragment && f.family == packet.FamilyIPv6 {
		out = append(out, chainCut)
	}
	return out
}

// chainCut matches first fragments of IPv6 that end within the extension headers. Their protocol is unknown. So the test for TCP fails, and the test
// for protocols other than TCP fails, too. The kernel reassembles such packets (net/ipv6/reassembly.c, ipv6frag_thdr_truncated).
var chainCut = condition{
	any: []lineTests{{match: []string{"-m frag --fragfirst --fragmore"}}},
	not: []lineTests{{proto: "tcp"}, {proto: "! tcp"}},
}

// fieldRule returns a rule with tests of fields only.
func fieldRule(matches ...ir.Match) ir.Rule { return ir.Rule{Match: matches} }

// synFlags is the test for flags with SYN and without ACK.
var synFlags = match.Flags(func(v uint32) bool { return v&0x12 == 0x02 })

// checkRules returns rules that match packets that fail a check, if rules can express the check. The rules are tested in order.
func (f *familyBuilder) checkRules(c packet.Check) []ir.Rule {
	switch c {
	case packet.SourceAddress:
		return f.sourceRules()
	case packet.OwnSource:
		for i := range f.sets {
			if match.IsLocal(&f.sets[i]) {
				return []ir.Rule{{Src: []ir.AddrMatch{{Sets: []int{i}}}}}
			}
		}
	}
	return fieldChecks[c]
}

// fieldChecks has the checks that test only fields, as rules.
var fieldChecks = map[packet.Check][]ir.Rule{
	packet.TTLZero: {fieldRule(match.Field(packet.TTL, ranges.Span(0, 0)))},
	packet.NDHopLimit: {fieldRule(match.Field(packet.ICMP, ranges.Span(packet.ICMPv6|133<<8, packet.ICMPv6|137<<8|0xff)),
		match.Field(packet.TTL, ranges.Span(0, 254)))},
	packet.TCPFlags: {fieldRule(match.Flags(func(v uint32) bool { return !packet.ValidFlags(byte(v)) }))},
	packet.PortZero: {
		fieldRule(match.Field(packet.DPort, ranges.Span(0, 0), ranges.Span(packet.PortUDP, packet.PortUDP))),
		fieldRule(match.Field(packet.SPort, ranges.Span(0, 0)))},
	packet.UDPSourceZero:   {fieldRule(match.Field(packet.SPort, ranges.Span(packet.PortUDP, packet.PortUDP)))},
	packet.SYNLowPort:      {fieldRule(match.Field(packet.SPort, ranges.Span(0, 1023)), synFlags)},
	packet.ReflectorSource: {fieldRule(udpPorts(packet.ReflectorPorts))},
	packet.ICMPType:        {fieldRule(match.Field(packet.ICMP, ranges.Span(4<<8, 5<<8|0xff), ranges.Span(13<<8, 18<<8|0xff)))},
	packet.ICMPLarge: {fieldRule(match.Field(packet.ICMP, ranges.Span(8<<8, 8<<8|0xff), ranges.Span(packet.ICMPv6|128<<8, packet.ICMPv6|128<<8|0xff)),
		match.Field(packet.Length, ranges.Span(1025, 65535)))},
	packet.IPProtocol: {fieldRule(match.Field(packet.Family, ranges.Span(packet.FamilyIPv4, packet.FamilyIPv4)),
		match.Field(packet.Proto, ranges.Span(148, 252), ranges.Span(255, 255)))},
}

func udpPorts(ports []uint16) ir.Match {
	var list []ir.Range
	for _, p := range ports {
		list = append(list, ranges.Span(packet.PortUDP+uint32(p), packet.PortUDP+uint32(p)))
	}
	return match.Field(packet.SPort, list...)
}

// sourceRules returns a rule for each invalid source prefix. There are few of them.
func (f *familyBuilder) sourceRules() (rules []ir.Rule) {
	for _, prefix := range packet.InvalidSources {
		rules = append(rules, ir.Rule{Src: f.listed("", prefix)})
	}
	return rules
}

// bogon returns the condition of the check bogon-source. It has two kinds of exceptions. The first is the addresses of NAT64: they are routed,
// although the addresses around them are not (RFC 6052). The second is UDP and, in IPv6, neighbor discovery. Their source may be unspecified or
// link-local, because the sender has no address yet, or sends only to the link.
func (f *familyBuilder) bogon() condition {
	c := f.addresses(&ir.Rule{Src: f.listed(packet.BogonSource.String(), packet.Bogons...)})
	except := func(prefix, proto string) {
		c.not = append(c.not, lineTests{proto: proto, addrs: []addrTest{{prefix: netip.MustParsePrefix(prefix)}}})
	}
	if f.family == packet.FamilyIPv4 {
		except("0.0.0.0/32", "udp")
		return c
	}
	except("64:ff9b::/96", "")
	for _, prefix := range []string{"::/128", "fe80::/10"} {
		except(prefix, "udp")
		except(prefix, "ipv6-icmp")
	}
	return c
}

// listed returns a match for the addresses in prefixes. A list with a name becomes a set.
func (b *builder) listed(name string, prefixes ...netip.Prefix) []ir.AddrMatch {
	key := name + " " + prefixes[0].String()
	if _, ok := b.lists[key]; !ok {
		var list addrs.Builder
		for _, p := range prefixes {
			r := netipx.RangeOfPrefix(p)
			list.AddRange(r.From(), r.To())
		}
		b.lists[key] = len(b.sets)
		b.sets = append(b.sets, ir.Set{Name: name, Static: list.Set()})
	}
	return []ir.AddrMatch{{Sets: []int{b.lists[key]}}}
}
