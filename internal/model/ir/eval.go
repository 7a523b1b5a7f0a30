// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"net/netip"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Reason says why a packet got its verdict.
type Reason struct {
	Kind  ReasonKind
	Index int // the number of the check, or the index of the rule in Program.Rules; 0 for other kinds
}

// ReasonKind is the kind of a reason.
type ReasonKind uint8

// The kinds, in the order of their tests. ReasonDefault is the last.
const (
	ReasonCheck   ReasonKind = iota // a check that the packet fails; the verdict is Drop
	ReasonNotIP                     // not an IP packet, which no rule matches; the verdict is Pass
	ReasonRule                      // the first rule that matches
	ReasonDefault                   // no rule matches, or the IP header cannot be read
)

// ReasonName returns the name under which r is counted: that of a check or a rule, default, or not-ip.
func (p *Program) ReasonName(r Reason) string {
	switch r.Kind {
	case ReasonCheck:
		return packet.Check(r.Index).String()
	case ReasonRule:
		return p.Rules[r.Index].Name
	case ReasonNotIP:
		return "not-ip"
	}
	return "default"
}

// World is the state outside of the packet on which a verdict depends. In its zero value, sets are empty, there are no connections, and no packet
// exceeds a limit.
type World struct {
	Member  func(set int, a netip.Addr) bool         // whether the dynamic set with this index contains an address
	Over    func(limit int, pkt *packet.Packet) bool // whether a packet exceeds the limit; if it does not, it is charged: see Limiter
	Observe func(r Reason)                           // called for each matching check or rule that only counts

	Known    func(pkt *packet.Packet) bool            // whether a packet is from a known client: see Flood
	Proved   func(flood int, pkt *packet.Packet) bool // whether a packet has an identifier issued by the service of this flood to any client
	Proves   func(flood int, pkt *packet.Packet) bool // whether a query to a game server proves its source address; unlike Proved, regardless of the limit
	Served   func(flood int, pkt *packet.Packet) bool // whether a packet has a cookie of Floodwall, and an answer of the service to it is stored
	Calm     func(flood int, pkt *packet.Packet) bool // whether there is no flood; it charges the packet. nil: there is never a flood
	Answered func(flood int, pkt *packet.Packet) bool // the answer to AsksAnswered; it charges a packet that passes
	Again    func(flood int, pkt *packet.Packet) bool // the answer to AsksAgain; it records a new packet, and charges a packet that passes
	Spent    func(limit int, pkt *packet.Packet) bool // whether more than half of a limit's burst is used; it charges nothing: see Limiter

	// Unanswered reports whether the name of a query is below a flooded zone and has not been answered: see Rule. nil: no zone is flooded.
	Unanswered func(pkt *packet.Packet) bool

	// Connections returns the number of open connections for the prefixes of a packet that a rule with a ConnLimit has passed. It does not count the
	// connection that the packet itself opens.
	Connections func(r *Rule, pkt *packet.Packet) int

	Now int64 // the time, in the unit of Rule.Until; 0 is before the end of every rule
}

// Eval returns the verdict of the program about pkt. It is the definition against which every target is tested. A packet that the kernel has joined from
// segments has the verdict of the first segment, and counts as all of them: packet.Part parts it.
func (p *Program) Eval(pkt *packet.Packet, w World) (Verdict, Reason) {
	e := evaluation{program: p, pkt: pkt, World: w}
	if check, failed := e.failed(p.Checks); failed {
		return Drop, Reason{Kind: ReasonCheck, Index: int(check)}
	}
	if check, failed := e.failed(p.Observed); failed {
		e.observe(Reason{Kind: ReasonCheck, Index: int(check)})
	}
	switch pkt.Kind {
	case packet.NotIP:
		return Pass, Reason{Kind: ReasonNotIP}
	case packet.IP:
		for i := range p.Rules {
			if !e.matches(&p.Rules[i]) {
				continue
			}
			reason := Reason{Kind: ReasonRule, Index: i}
			if !p.Rules[i].Observe {
				return p.Rules[i].Verdict, reason
			}
			e.observe(reason)
		}
	}
	return p.Default, Reason{Kind: ReasonDefault}
}

// evaluation is the state of Eval for one packet.
type evaluation struct {
	program *Program
	pkt     *packet.Packet
	World
}

func (e *evaluation) observe(r Reason) {
	if e.Observe != nil {
		e.Observe(r)
	}
}

// failed returns the first check in of that the packet fails. failed is false if it passes all of them.
func (e *evaluation) failed(of packet.CheckSet) (check packet.Check, failed bool) {
	fails := e.pkt.Failed
	if e.pkt.Kind == packet.IP && e.isLocal(e.pkt.Src) {
		fails = fails.With(packet.OwnSource)
	}
	if e.program.RepliesFirst && Replies.Has(e.pkt.Value[packet.State]) {
		fails &^= packet.SenderChecks
	}
	return (fails & of).First()
}

// Replies is the match of replies to outgoing packets.
var Replies = Match{packet.State, []Range{{First: packet.StateEstablished, Last: packet.StateRelated}}}

// isLocal reports whether a is one of the host's own addresses.
func (e *evaluation) isLocal(a netip.Addr) bool {
	for i, s := range e.program.Sets {
		if s.Dynamic != nil && s.Dynamic.Local && e.contains(i, a) {
			return true
		}
	}
	return false
}

// matches reports whether all tests of r hold.
func (e *evaluation) matches(r *Rule) bool {
	for _, m := range r.Src {
		if !e.addrMatches(m, e.pkt.Src) {
			return false
		}
	}
	for _, m := range r.Dst {
		if !e.addrMatches(m, e.pkt.Dst) {
			return false
		}
	}
	for _, m := range r.Match {
		if !m.Has(e.pkt.Value[m.Field]) {
			return false
		}
	}
	return e.holds(r)
}

// addrMatches reports whether the match m holds for the address a.
func (e *evaluation) addrMatches(m AddrMatch, a netip.Addr) bool {
	for _, set := range m.Sets {
		if e.contains(set, a) {
			return !m.Not
		}
	}
	return m.Not
}

// contains reports whether the set with this index contains an address.
func (e *evaluation) contains(set int, a netip.Addr) bool {
	s := &e.program.Sets[set]
	if s.Dynamic != nil {
		return e.Member != nil && e.Member(set, a)
	}
	return s.Static != nil && s.Static.Contains(a)
}

// Has reports whether v is one of the values of m.
func (m Match) Has(v uint32) bool {
	for _, r := range m.Values {
		if v >= r.First && v <= r.Last {
			return true
		}
	}
	return false
}
