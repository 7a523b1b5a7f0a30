package policy

import (
	"fmt"
	"slices"
)

// notes are the remarks on a policy without mistakes.
func notes(pol *Policy) []Note {
	var ns []Note
	if pol.Default == Drop && !passesSSH(pol) {
		ns = append(ns, Note{pol.DefaultPos, "default: drop, and no service or rule passes tcp/22: SSH will be cut"})
	}
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

func shared(at Pos, what, name string) Note {
	return Note{at, fmt.Sprintf("%s %q has the name of a check: reasons and counters of the two look alike", what, name)}
}

// passesSSH reports whether anything passes a packet to TCP port 22. It looks at protocol and ports only: who may come
// in is the policy's decision.
func passesSSH(pol *Policy) bool {
	for _, s := range pol.Services {
		if coversSSH(s.Port) {
			return true
		}
	}
	return slices.ContainsFunc(pol.Rules, func(r Rule) bool {
		m := r.Match
		return r.Then == Pass && m.ICMP == nil && m.SPort == nil &&
			(m.Proto == nil || slices.Contains(m.Proto, protoTCP)) && (m.Port == nil || coversSSH(m.Port))
	})
}

func coversSSH(ports []Port) bool {
	return slices.ContainsFunc(ports, func(p Port) bool {
		return p.Proto != protoUDP && p.First <= 22 && 22 <= p.Last
	})
}
