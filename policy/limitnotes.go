package policy

import (
	"fmt"
	"slices"
)

// limitNotes are the remarks on limits that do not do what their author may expect.
func limitNotes(pol *Policy) []Note {
	var ns []Note
	for _, r := range pol.Rules {
		if r.Over == nil {
			continue
		}
		if r.Then == Pass && !r.Observe {
			ns = append(ns, Note{r.Pos, fmt.Sprintf(
				"rule %q passes what exceeds its rate; what does not goes on to the rules behind it", r.Name)})
		}
		for _, o := range r.Over {
			if o.Ban != nil && !dropped(pol.Rules, o.Ban.Set) {
				ns = append(ns, Note{o.Pos, fmt.Sprintf(
					"rule %q bans into set %q, which no rule drops: nothing happens to who is banned", r.Name, o.Ban.Set)})
			}
		}
	}
	return ns
}

// dropped reports whether a rule drops what comes from a set.
func dropped(rules []Rule, set string) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool {
		return r.Then != Pass && slices.ContainsFunc(r.Match.From, func(a Addr) bool { return a.Set == set })
	})
}

// guardNotes are the remarks on guarded services whose clients cannot come back over TCP.
func guardNotes(services []Service) []Note {
	var ns []Note
	for _, s := range services {
		if s.Guard != nil && !hasProto(s.Port, protoTCP) {
			ns = append(ns, Note{s.Guard.Pos, fmt.Sprintf(
				"service %q has no port of TCP: who gets a truncated response cannot come back, and nobody is verified", s.Name)})
		}
	}
	return ns
}
