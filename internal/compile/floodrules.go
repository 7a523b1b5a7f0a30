// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// leastDraws is the smallest burst of a known client's limit, in sampled packets. If a client keeps its limit, random sampling selects no more of its
// packets at once.
const leastDraws = 32

// answeredShare is the number of further packets, over all answered clients, that are allowed for each first packet that total allows. A new QUIC
// client sends 7 to 9 packets until its first stream is answered. In a flood, few of the clients whose first packet passes are real clients. Each
// client may send ir.MayPass packets.
const answeredShare = 4

// roundUp returns the number of sampled packets among n packets, rounded up.
func roundUp(n uint64) uint64 { return (n + ir.KnownShare - 1) / ir.KnownShare }

// answered returns the limit for all packets that pass because the service has answered their client: answeredShare times the rate of first packets.
// If total is off, the rate of first packets is the rate below which a flood ends.
func answered(u *policy.UDP) policy.Over {
	total := u.Stop
	if u.Total != nil {
		total = *u.Total
	}
	total.Rate, total.Burst = answeredShare*total.Rate, answeredShare*total.Burst
	return total
}

// flood adds the rules that protect a UDP service from floods, before the rule that passes its traffic:
//   - packets of known clients pass;
//   - a few packets of each client that the service has answered pass, if the protocol has no challenge;
//   - all other packets pass while there is no flood of them;
//   - in a flood, a2s queries and raknet requests without a proof of their address get a challenge, which is no larger than they are;
//   - queries that prove their address are dropped above the limits by prefix; below them Floodwall answers those that it can;
//   - packets with an identifier that the service has issued to any client, or with a cookie of Floodwall, pass;
//   - packets that repeat a refused packet pass, within the limits by prefix and the limit for all clients;
//   - packets that cannot be the first of a client are dropped, then packets above the limit for all clients, and then packets above the limits by
//     prefix.
//
// First packets may use only half of the limit for all clients. The other half is reserved for repeated packets. So a flood that does not repeat
// its packets cannot use up that half.
//
// The limit for all clients is tested first, without a charge. When a flood from many prefixes has exhausted this limit, its packets cost only this
// test. The limit is charged last, so that packets above the limit of their prefix do not use it up.
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
	if !u.Protect.Challenged() {
		l.program.Floods[number].Answered = l.limits(s.Name+":answered", []policy.Over{answered(u)})[0]
	}
	if u.Protect != packet.Generic {
		each.From = nil
		l.program.Floods[number].Proved = l.limits(s.Name+":proved", []policy.Over{each})[0]
	}
	add := func(name string, verdict ir.Verdict, rule ir.Rule) {
		rule.Name, rule.Kind, rule.Verdict, rule.Line, rule.Col = s.Name+":"+name, ir.RuleKindService, verdict, s.Pos.Line, s.Pos.Col
		rule.Flood, rule.Placement = number, ir.PlaceEarliest // all run at one stage, whatever the policy's placement is
		rule.Observe = u.Observe && verdict != ir.Pass
		l.match(&rule, policy.Match{Port: ports, From: s.From}, false)
		l.program.Rules = append(l.program.Rules, rule)
	}
	add("known", ir.Pass, ir.Rule{Asks: ir.AsksKnown})
	if !u.Protect.Challenged() {
		add("answered", ir.Pass, ir.Rule{Asks: ir.AsksAnswered})
	}
	add("calm", ir.Pass, ir.Rule{Asks: ir.AsksCalm})
	if u.Protect.Challenged() {
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
	over := l.limits(s.Name+":limit", u.Limits)
	var total []int
	if u.Total != nil {
		total = l.limits(s.Name+":total", []policy.Over{*u.Total})
		over = append(over, total...)
		l.program.Floods[number].Again = over
		add("again", ir.Pass, ir.Rule{Asks: ir.AsksAgain})
	}
	if u.Protect == packet.WireGuard || u.Protect == packet.QUIC {
		add("stray", ir.Drop, ir.Rule{Asks: ir.AsksStray})
	}
	if total != nil {
		add("total", ir.Drop, ir.Rule{Asks: ir.AsksSpent, Over: total})
	}
	if over != nil {
		add("limit", ir.Drop, ir.Rule{Over: over})
	}
}
