package compile

import (
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// leastDraws is the least burst of drawn packets of a known client. Of a client that sends what it may, chance draws no more at once.
const leastDraws = 32

// roundUp is how many packets of n are drawn, rounded up.
func roundUp(n uint64) uint64 { return (n + ir.KnownShare - 1) / ir.KnownShare }

// flood adds the rules that protect a UDP service from floods, before the rule that passes its traffic:
//   - packets of known clients pass;
//   - so do all others as long as there is no flood of them;
//   - else queries of a2s and requests of raknet that prove nothing are challenged, with no more bytes than they have;
//   - those that prove their address are dropped beyond the limits by prefix, and within them answered from here where that can be;
//   - those pass that have an identifier which the service has issued to anybody, or a cookie of ours;
//   - those are dropped with which nobody begins to talk, then those beyond the limit for all together, and then those beyond the limits by prefix.
//
// The limit for all is asked first, without a charge: a flood from many prefixes has used it up, and costs no more than that. It is
// charged last, so that no prefix uses up what it may not have.
func (l *lowering) flood(s policy.Service) {
	u := s.UDP
	if u == nil {
		return
	}
	number := len(l.program.Floods)
	ports := ofProto(packet.ProtoUDP, s.Port)
	each := u.Known
	each.Rate, each.Burst = roundUp(each.Rate), max(roundUp(each.Burst), leastDraws)
	l.program.Floods = append(l.program.Floods, ir.Flood{
		Service: s.Name, Protocol: u.Protect, Line: u.Pos.Line, Col: u.Pos.Col, Ports: fieldMatches(policy.Match{Port: ports})[0].Values,
		Start: l.limits(s.Name+":udp-start", []policy.Over{u.Start})[0],
		Stop:  l.limits(s.Name+":udp-stop", []policy.Over{u.Stop})[0],
		Each:  l.limits(s.Name+":known", []policy.Over{each})[0],
	})
	if u.Protect != packet.Generic {
		each.From = nil
		l.program.Floods[number].Proved = l.limits(s.Name+":proved", []policy.Over{each})[0]
	}
	add := func(name string, verdict ir.Verdict, rule ir.Rule) {
		rule.Name, rule.Kind, rule.Verdict, rule.Line, rule.Col = s.Name+":"+name, ir.RuleKindService, verdict, s.Pos.Line, s.Pos.Col
		rule.Flood, rule.Placement = number, ir.PlaceEarliest // one stage for all, whatever placement the policy has
		rule.Observe = u.Observe && verdict != ir.Pass
		l.match(&rule, policy.Match{Port: ports, From: s.From}, false)
		l.program.Rules = append(l.program.Rules, rule)
	}
	add("known", ir.Pass, ir.Rule{Asks: ir.AsksKnown})
	add("calm", ir.Pass, ir.Rule{Asks: ir.AsksCalm})
	if u.Protect == packet.A2S || u.Protect == packet.RakNet {
		add("challenge", ir.Challenge, ir.Rule{Asks: ir.AsksOpening})
		if len(u.Limits) > 0 {
			add("queries", ir.Drop, ir.Rule{Asks: ir.AsksQuery, Over: l.limits(s.Name+":queries", u.Limits)})
		}
	}
	if u.Protect == packet.A2S {
		add("served", ir.Serve, ir.Rule{Asks: ir.AsksServed})
	}
	if u.Protect != packet.Generic {
		add("proved", ir.Pass, ir.Rule{Asks: ir.AsksProved})
	}
	if u.Protect == packet.WireGuard || u.Protect == packet.QUIC {
		add("stray", ir.Drop, ir.Rule{Asks: ir.AsksStray})
	}
	over := l.limits(s.Name+":limit", u.Limits)
	if u.Total != nil {
		total := l.limits(s.Name+":total", []policy.Over{*u.Total})
		add("total", ir.Drop, ir.Rule{Asks: ir.AsksSpent, Over: total})
		over = append(over, total...)
	}
	if over != nil {
		add("limit", ir.Drop, ir.Rule{Over: over})
	}
}
