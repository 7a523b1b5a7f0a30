// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
)

// limitNotes returns notes about limits whose effect their author may not expect.
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
		ns = append(ns, deadLayers(r)...)
		if bansNobody(r) && !r.Observe {
			ns = append(ns, Note{r.Pos, fmt.Sprintf("rule %q bans nobody: only packets of TCP connections prove their source, and it matches "+
				"none; the limit holds all the same; ban: {for: 10m, trust: forgeable} bans whoever is written as the source", r.Name)})
		}
	}
	if i := slices.IndexFunc(pol.Rules, trusts); i >= 0 && pol.Never == nil {
		ns = append(ns, Note{pol.Rules[i].Pos, fmt.Sprintf(
			"rule %q trusts forgeable sources: who forges addresses can have anybody banned; never: [...] lists who must not be", pol.Rules[i].Name)})
	}
	return ns
}

// trusts reports whether a rule has a ban that can be caused by packets with a forged source.
func trusts(r Rule) bool {
	return slices.ContainsFunc(r.Over, func(o Over) bool { return o.Ban != nil && o.Ban.Forgeable })
}

// bansNobody reports whether a rule has a ban that requires a packet with a proven source, but matches no such packet. Only segments of TCP
// connections, with ACK and without SYN, prove their source.
func bansNobody(r Rule) bool {
	proves := func(m Match) bool {
		return (m.Proto == nil || slices.Contains(m.Proto, protoTCP)) && (m.Port == nil || hasTCP(m.Port)) &&
			(m.SPort == nil || hasTCP(m.SPort)) && m.ICMP == nil && m.DNS == nil && (m.Flags == nil || slices.ContainsFunc(m.Flags, inConnection))
	}
	return slices.ContainsFunc(r.Over, func(o Over) bool { return o.Ban != nil && !o.Ban.Forgeable }) &&
		(!proves(r.Match) || slices.Contains(r.Not.Proto, protoTCP))
}

// inConnection reports whether any segment of an open connection can have flags that match f.
func inConnection(f Flags) bool {
	const fin, rst, psh, ack = 1, 4, 8, 16
	return slices.ContainsFunc([]uint8{ack, ack | psh, ack | fin, ack | fin | psh, ack | rst}, func(have uint8) bool {
		return have&f.Mask == f.Value
	})
}

// deadLayers returns notes about limits of a rule that no packet can exceed, because all packets that are charged to
// them are within an earlier limit that is at least as strict.
func deadLayers(r Rule) []Note {
	var ns []Note
	for i, o := range r.Over {
		j := slices.IndexFunc(r.Over[:i], func(before Over) bool { return before.implies(&o) })
		if j < 0 {
			continue
		}
		what := "this limit has no effect"
		if o.Ban != nil {
			what = "nobody is banned by this limit"
		}
		ns = append(ns, Note{o.Pos, fmt.Sprintf("rule %q: %s, as what keeps to the one at %d:%d keeps to it too; put it first",
			r.Name, what, r.Over[j].Pos.Line, r.Over[j].Pos.Col)})
	}
	return ns
}

// implies reports whether traffic that does not exceed the limit o cannot exceed the limit other either. This requires that both have the same
// prefixes.
func (o *Over) implies(other *Over) bool {
	perOther, perThis := float64(other.Rate)/float64(other.Per), float64(o.Rate)/float64(o.Per)
	return samePrefixes(o.From, other.From) && samePrefixes(o.To, other.To) && o.Bits == other.Bits &&
		perThis <= perOther && o.Burst <= other.Burst
}

func samePrefixes(a, b *PrefixLen) bool { return a == b || a != nil && b != nil && *a == *b }

// asksFor reports whether any rule or service tests whether the source is in the set.
func asksFor(pol *Policy, set string) bool {
	named := func(from []Addr) bool {
		return slices.ContainsFunc(from, func(a Addr) bool { return a.Set == set })
	}
	return slices.ContainsFunc(pol.Rules, func(r Rule) bool { return named(r.Match.From) || named(r.Not.From) }) ||
		slices.ContainsFunc(pol.Services, func(s Service) bool { return named(s.From) })
}

// guardNotes returns notes about guarded services whose clients cannot repeat a query over TCP.
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
