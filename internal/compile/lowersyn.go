// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// displaced is the limit for the connections that one network may displace from a full flow table. Without it, a network that opens 20,000
// connections per second would replace a million connections within a minute. With it, that takes more than an hour. By then, the table prefers
// connections that are older than a minute. A table is full only if it is too small for its service.
var displaced = policy.Over{Rate: 200, Per: time.Second, Burst: 1000, From: &policy.PrefixLen{V4: 24, V6: 48}, Max: 1 << 16}

// protect adds the rule of a protected service, before the rule that passes the service's other traffic. The rule matches TCP to this host's own
// addresses. If the service is behind this host, it matches TCP to all other addresses.
func (l *lowering) protect(s policy.Service) {
	if s.Syn == nil {
		return
	}
	rule := ir.Rule{Name: s.Name + ":syn", Kind: ir.RuleKindService, Line: s.Pos.Line, Col: s.Pos.Col}
	match := policy.Match{Port: ofProto(packet.ProtoTCP, s.Port), From: s.From}
	l.match(&rule, match, false)
	rule.Dst = append(rule.Dst, ir.AddrMatch{Sets: []int{l.localSet()}, Not: s.Syn.Mode == policy.SynRouter})
	p := ir.Protection{
		Service: s.Name, Line: s.Syn.Pos.Line, Col: s.Syn.Pos.Col, Ports: fieldMatches(policy.Match{Port: match.Port})[0].Values,
		Router: s.Syn.Mode == policy.SynRouter, Always: s.Syn.Always, Start: -1, Stop: -1,
		MSS: s.Syn.MSS, WScale: s.Syn.WScale, Flows: s.Syn.Flows, Backends: s.Syn.Backends,
	}
	if !p.Always {
		p.Start = l.limits(s.Name+":start", []policy.Over{*s.Syn.Start})[0]
		p.Stop = l.limits(s.Name+":stop", []policy.Over{*s.Syn.Stop})[0]
	}
	p.Displace = l.limits(s.Name+":displace", []policy.Over{displaced})[0]
	if s.Syn.Authenticated != nil {
		p.Keyed = l.limits(s.Name+":authenticated", []policy.Over{*s.Syn.Authenticated})
	}
	p.Limits = l.limits(rule.Name, s.Syn.Limits)
	if s.Syn.Total != nil {
		p.Limits = append(p.Limits, l.limits(rule.Name, []policy.Over{*s.Syn.Total})...)
	}
	l.program.Protections = append(l.program.Protections, p)
	rule.Protect = len(l.program.Protections)
	l.program.Rules = append(l.program.Rules, rule)
}

// ofProto returns the ports that a protocol, TCP or UDP, uses, restricted to that protocol. A port for both protocols is included.
func ofProto(proto uint8, ports []policy.Port) []policy.Port {
	var out []policy.Port
	for _, p := range ports {
		if p.Proto == proto || p.Proto == 0 {
			out = append(out, policy.Port{Proto: proto, First: p.First, Last: p.Last})
		}
	}
	return slices.Clip(out)
}
