// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// notes returns the notes about a policy without mistakes.
func notes(pol *Policy) []Note {
	var ns []Note
	if pol.Default == Drop && !passesSSH(pol) {
		ns = append(ns, Note{pol.DefaultPos, "default: drop, and no service or rule passes tcp/22: SSH will be cut"})
	}
	if closesNothing(pol) {
		ns = append(ns, Note{pol.Services[0].Pos, "there is no default, so what no service names passes, too: `default: drop` drops it, and `default: pass` says that this is meant"})
	}
	if i := slices.IndexFunc(pol.Rules, answersAll); pol.Default == Drop && i >= 0 {
		ns = append(ns, reflects(pol.Rules[i]))
	}
	ns = append(ns, ReplyNotes(pol)...)
	ns = append(ns, limitNotes(pol)...)
	ns = append(ns, essentialNotes(pol)...)
	ns = append(ns, guardNotes(pol.Services)...)
	ns = append(ns, nameNotes(pol.Names)...)
	ns = append(ns, feedNotes(pol.Sets)...)
	for _, r := range pol.Rules {
		if sharesCheck(r.Name) {
			ns = append(ns, shared(r.Pos, "rule", r.Name))
		}
	}
	for _, s := range pol.Services {
		if sharesCheck(s.Name) {
			ns = append(ns, shared(s.Pos, "service", s.Name))
		}
	}
	return ns
}

// closesNothing reports whether a policy only names services that pass, and has no default, so that all other traffic
// passes, too.
func closesNothing(pol *Policy) bool {
	onlyPasses := func(s Service) bool { return s.Guard == nil && s.Syn == nil && s.UDP == nil && s.Track == TrackAsIs }
	return pol.DefaultPos == (Pos{}) && len(pol.Rules) == 0 && len(pol.Services) > 0 && !slices.ContainsFunc(pol.Services, func(s Service) bool { return !onlyPasses(s) })
}

func shared(at Pos, what, name string) Note {
	return Note{at, fmt.Sprintf("%s %q has the name of a check: reasons and counters of the two look alike", what, name)}
}

// reflects returns the note about the first rule for which answersAll is true. One note is enough, because an author
// who writes one such rule writes many.
func reflects(r Rule) Note {
	return Note{r.Pos, fmt.Sprintf("rule %q rejects, whoever sends: a flood from forged addresses makes this host send "+
		"answers to their owners; name the senders with from, or drop", r.Name)}
}

// answersAll reports whether a rule rejects packets whose source can be forged. This matters only with `default: drop`. With `default: pass`, closed
// ports send errors to forged sources in any case.
func answersAll(r Rule) bool {
	m := r.Match
	return r.Then == Reject && !r.Observe && m.From == nil && (m.State == nil || slices.ContainsFunc(m.State, canForge))
}

// canForge reports whether an attacker that sees no answers and knows no connection can send a packet with a given
// state.
func canForge(state uint32) bool {
	return state != packet.StateEstablished && state != packet.StateRelated
}

// ReplyNotes returns notes about rules for replies that `replies: pass` makes unnecessary, or would make unnecessary.
func ReplyNotes(pol *Policy) (ns []Note) {
	if pol.Default != Drop {
		return nil
	}
	byState, byPort := "passes what conntrack knows; `replies: pass` in its place has XDP decide that, without conntrack",
		"lets in any sender who chooses its source port; `replies: pass` in its place lets in answers only"
	if pol.Replies {
		byState = "is not needed beside `replies: pass`, unless rules behind it drop replies; XDP decides those without conntrack"
		byPort = "is hardly needed beside `replies: pass`, and lets in any sender who chooses its source port"
	}
	for _, r := range pol.Rules {
		m := r.Match
		alone := reflect.ValueOf(r.Not).IsZero() && m.From == nil && m.To == nil && m.ICMP == nil && m.Payload == nil
		if r.Then != Pass || r.Observe || r.Over != nil || m.Port != nil || !alone {
			continue
		}
		switch {
		case m.State != nil && m.SPort == nil && !slices.ContainsFunc(m.State, canForge):
			ns = append(ns, Note{r.Pos, fmt.Sprintf("rule %q %s", r.Name, byState)})
		case m.State == nil && m.SPort != nil:
			ns = append(ns, Note{r.Pos, fmt.Sprintf("rule %q %s", r.Name, byPort)})
		}
	}
	return ns
}

// passesSSH reports whether a service or rule passes packets to TCP port 22. It tests protocol and ports only: the
// allowed sources are the policy's decision.
func passesSSH(pol *Policy) bool {
	for _, s := range pol.Services {
		if coversSSH(s.Port) {
			return true
		}
	}
	return slices.ContainsFunc(pol.Rules, func(r Rule) bool {
		m := r.Match
		return r.Then == Pass && !r.Observe && r.Over == nil && m.Payload == nil && m.ICMP == nil && m.SPort == nil &&
			(m.State == nil || slices.Contains(m.State, packet.StateNew)) &&
			(m.Proto == nil || slices.Contains(m.Proto, protoTCP)) && (m.Port == nil || coversSSH(m.Port))
	})
}

func coversSSH(ports []Port) bool {
	return slices.ContainsFunc(ports, func(p Port) bool {
		return p.Proto != protoUDP && p.First <= 22 && 22 <= p.Last
	})
}
