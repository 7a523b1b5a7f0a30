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
			if o.Ban != nil && !asksFor(pol, o.Ban.Set) {
				ns = append(ns, Note{o.Pos, fmt.Sprintf(
					"rule %q bans into set %q, which no rule names: nothing happens to who is banned", r.Name, o.Ban.Set)})
			}
		}
	}
	return ns
}

// asksFor reports whether a rule or service asks for sources in a set.
func asksFor(pol *Policy, set string) bool {
	named := func(from []Addr) bool {
		return slices.ContainsFunc(from, func(a Addr) bool { return a.Set == set })
	}
	return slices.ContainsFunc(pol.Rules, func(r Rule) bool { return named(r.Match.From) || named(r.Not.From) }) ||
		slices.ContainsFunc(pol.Services, func(s Service) bool { return named(s.From) })
}

// guardNotes are the remarks on guarded services whose clients cannot come back over TCP.
func guardNotes(services []Service) []Note {
	var ns []Note
	for _, s := range services {
		if s.Guard != nil && !hasTCP(s.Port) {
			ns = append(ns, Note{s.Guard.Pos, fmt.Sprintf(
				"service %q has no port of TCP: who gets a truncated response cannot come back, and nobody is verified", s.Name)})
		}
	}
	return ns
}
