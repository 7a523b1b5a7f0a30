// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
	"github.com/floodwall/floodwall/policy"
)

// query is the range of values of packet.DNS that are query types.
var query = []ir.Range{{First: 0, Last: packet.DNSResponse - 1}}

// anyUDP is the range of UDP ports to which a query can be sent. dnsPort is the port that a rule for queries matches if it names no port.
var (
	anyUDP  = []ir.Range{{First: packet.PortUDP, Last: packet.PortNone - 1}}
	dnsPort = ranges.Of(packet.PortUDP + 53)
)

// condition adds all tests and options of a rule except the tests of addresses and fields.
func (l *lowering) condition(rule *ir.Rule, r policy.Rule) {
	l.payload(rule, r.Match.Payload, false)
	l.payload(rule, r.Not.Payload, true)
	if r.Match.DNS != nil || r.Not.DNS != nil || r.Then == policy.Truncate {
		l.dnsPort(rule)
	}
	l.dns(rule, r.Match.DNS, false)
	l.dns(rule, r.Not.DNS, true)
	if r.Then == policy.Truncate {
		rule.Match = match.Also(rule.Match, ir.Match{Field: packet.DNS, Values: query})
	}
	rule.Over = l.limits(r.Name, r.Over)
	if c := r.Connections; c != nil {
		rule.Connections = &ir.ConnLimit{Most: c.Most, Src: (*ir.Prefixes)(c.From), Dst: (*ir.Prefixes)(c.To), Max: c.Max}
		rule.Match = match.Also(rule.Match, ir.Match{Field: packet.State, Values: ranges.Of(packet.StateNew)})
	}
	rule.Observe, rule.Slip, rule.Sample = r.Observe, r.Slip, r.Sample
}

func (l *lowering) payload(rule *ir.Rule, m *policy.Payload, not bool) {
	if m == nil {
		return
	}
	match := ir.PayloadMatch{Not: not}
	for _, p := range m.Contains {
		match.Any = append(match.Any, ir.Pattern(p))
	}
	for _, a := range m.At {
		base := ir.BasePayload
		if a.Header {
			base = ir.BaseL4
		}
		match.At = append(match.At, ir.At{Base: base, Offset: a.Offset, Value: a.Value, Mask: a.Mask})
	}
	rule.Payload = append(rule.Payload, match)
}

// dnsPort restricts a rule to the packets that are parsed as DNS messages. These are packets to the UDP ports that the rule names. If the rule names
// none, they are packets to port 53.
func (l *lowering) dnsPort(rule *ir.Rule) {
	ports := anyUDP
	if !slices.ContainsFunc(rule.Match, func(m ir.Match) bool { return m.Field == packet.DPort || m.Field == packet.SPort }) {
		ports = dnsPort
	}
	rule.Match = match.Also(rule.Match, ir.Match{Field: packet.DPort, Values: ports})
}

func (l *lowering) dns(rule *ir.Rule, m *policy.DNS, not bool) {
	if m == nil {
		return
	}
	types := query
	if m.Types != nil {
		types = ranges.Normalize(each(m.Types, rangeValues))
	}
	switch {
	case not && (m.Types != nil || m.Names == nil):
		rule.Match = match.Also(rule.Match, ir.Match{Field: packet.DNS, Values: ranges.Complement(types, packet.DNS.Size())})
	case !not:
		rule.Match = match.Also(rule.Match, ir.Match{Field: packet.DNS, Values: types})
	}
	if m.Names != nil {
		rule.Names = append(rule.Names, ir.NameMatch{Sets: l.nameSets(m.Names), Not: not})
	}
}

// nameSets returns the indices of the sets for the names in a rule. The names that are written in the rule form a set of their own.
func (l *lowering) nameSets(names []policy.DNSName) (sets []int) {
	var written []string
	for _, n := range names {
		if n.Set != "" {
			sets = append(sets, l.namesNamed[n.Set])
		} else {
			written = append(written, n.Name)
		}
	}
	if written != nil {
		sets = append(sets, len(l.program.Names))
		l.program.Names = append(l.program.Names, ir.NameSet{Names: written})
	}
	slices.Sort(sets)
	return slices.Compact(sets)
}

// limits adds limits to the program, and returns their numbers.
func (l *lowering) limits(rule string, over []policy.Over) (numbers []int) {
	for _, o := range over {
		limit := ir.Limit{
			Rule: rule, Rate: o.Rate, Per: o.Per, Bits: o.Bits, Burst: o.Burst,
			Src: (*ir.Prefixes)(o.From), Dst: (*ir.Prefixes)(o.To), Max: o.Max,
		}
		if o.Ban != nil {
			limit.Ban = &ir.Ban{Set: l.named[o.Ban.Set], For: o.Ban.For, Forgeable: o.Ban.Forgeable}
		}
		numbers = append(numbers, len(l.program.Limits))
		l.program.Limits = append(l.program.Limits, limit)
	}
	return numbers
}

// never records the addresses that are never banned.
func (l *lowering) never(spared []policy.Addr) {
	if spared == nil {
		return
	}
	var written []policy.AddrRange
	var sets []*addrs.Set
	for _, a := range spared {
		if a.Set != "" {
			sets = append(sets, l.program.Sets[l.named[a.Set]].Static)
		} else {
			written = append(written, a.AddrRange)
		}
	}
	l.program.Never = addrs.Union(append(sets, staticSet(written))...)
}
