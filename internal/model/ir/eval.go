package ir

import (
	"net/netip"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Reason says why a packet got its verdict.
type Reason struct {
	Kind  ReasonKind
	Index int // the check's number, or that of the rule in Program.Rules; else 0
}

// ReasonKind is what gave the verdict.
type ReasonKind uint8

// The kinds, in the order in which they are asked; Default is what is left.
const (
	ReasonCheck   ReasonKind = iota // a check that the packet fails; the verdict is Drop
	ReasonNotIP                     // not an IP packet, with which no rule is concerned; the verdict is Pass
	ReasonRule                      // the first rule that matches
	ReasonDefault                   // no rule matches, or the IP header cannot be read
)

// ReasonName is the name under which r is counted: that of a check or a rule, default, or not-ip.
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

// World is what a verdict depends on besides the packet. Its zero value has empty sets, no connections, and limits that nobody exceeds.
type World struct {
	Member  func(set int, a netip.Addr) bool         // whether a dynamic set, by its index, has an address
	Over    func(limit int, pkt *packet.Packet) bool // whether a limit is exceeded, and charges it if not: see Limiter
	Observe func(r Reason)                           // is told of checks and rules that only count

	Known  func(pkt *packet.Packet) bool            // whether a packet is of a known client: see Flood
	Proved func(flood int, pkt *packet.Packet) bool // whether a packet has an identifier that the service of a flood, by its index, has issued to anybody
	Proves func(flood int, pkt *packet.Packet) bool // whether a query at a game server proves its source's address, also where Proved says no as all such packets have used up their limit
	Served func(flood int, pkt *packet.Packet) bool // whether a packet has a cookie of ours, and there is an answer of the service to give for it
	Calm   func(flood int, pkt *packet.Packet) bool // whether there is no flood, by its index; the packet, of none, is charged. nil: there is none
	Spent  func(limit int, pkt *packet.Packet) bool // whether a limit is exceeded; the packet is not charged

	// Unanswered is whether the name of a query is below a flooded zone, and was not answered: see Rule. nil: no zone is flooded
	Unanswered func(pkt *packet.Packet) bool

	// Connections is how many connections a rule with a ConnLimit has let begin that are not over, for the prefixes of a packet, without the
	// packet's own: the packet that opens one is not of it yet.
	Connections func(r *Rule, pkt *packet.Packet) int

	Now int64 // the time, as in Rule.Until; 0 is before the end of every rule
}

// Eval is what the program does with pkt: the definition, which every target is tested against.
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

// evaluation is one packet on its way through a program.
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

// failed finds the first of some checks that the packet fails.
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

// Replies matches what answers a packet that left.
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

// matches reports whether all that r asks for holds.
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

// addrMatches reports whether m holds for a.
func (e *evaluation) addrMatches(m AddrMatch, a netip.Addr) bool {
	for _, set := range m.Sets {
		if e.contains(set, a) {
			return !m.Not
		}
	}
	return m.Not
}

// contains reports whether a set has an address.
func (e *evaluation) contains(set int, a netip.Addr) bool {
	s := &e.program.Sets[set]
	if s.Dynamic != nil {
		return e.Member != nil && e.Member(set, a)
	}
	return s.Static != nil && s.Static.Contains(a)
}

// Has reports whether v is one of the values that m asks for.
func (m Match) Has(v uint32) bool {
	for _, r := range m.Values {
		if v >= r.First && v <= r.Last {
			return true
		}
	}
	return false
}
