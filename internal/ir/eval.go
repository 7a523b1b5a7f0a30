package ir

import (
	"net/netip"

	"github.com/floodwall/floodwall/internal/packet"
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

// Eval is what the program does with pkt: the definition, which every target is tested against. members reports whether
// a dynamic set, by its index in p.Sets, has an address; a nil members says that all are empty.
func (p *Program) Eval(pkt *packet.Packet, members func(set int, a netip.Addr) bool) (Verdict, Reason) {
	e := evaluation{program: p, pkt: pkt, members: members}
	if check, failed := e.check(); failed {
		return Drop, Reason{Kind: ReasonCheck, Index: int(check)}
	}
	switch pkt.Kind {
	case packet.NotIP:
		return Pass, Reason{Kind: ReasonNotIP}
	case packet.IP:
		for i := range p.Rules {
			if e.matches(&p.Rules[i]) {
				return p.Rules[i].Verdict, Reason{Kind: ReasonRule, Index: i}
			}
		}
	}
	return p.Default, Reason{Kind: ReasonDefault}
}

// evaluation is one packet on its way through a program.
type evaluation struct {
	program *Program
	pkt     *packet.Packet
	members func(set int, a netip.Addr) bool
}

// check finds the first enabled check that the packet fails.
func (e *evaluation) check() (check packet.Check, failed bool) {
	fails := e.pkt.Failed
	if e.pkt.Kind == packet.IP && e.isLocal(e.pkt.Src) {
		fails = fails.With(packet.OwnSource)
	}
	return (fails & e.program.Checks).First()
}

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
	return true
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
		return e.members != nil && e.members(set, a)
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
