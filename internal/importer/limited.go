// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/importer/saved"
)

// A rule that tests a rate divides the packets that reach it into two kinds: packets that exceed the limit, and all other packets. In the policy, one
// rule with `over` matches the first kind and gives these packets their final verdict. Only the second kind reaches the rules after it. The verdict
// for the first kind is found by following the chains again under the assumption that every limit is exceeded (follower.worst).

// maxParts is the largest number of rules into which the packets above a limit are divided by their verdict. Each rule has a limit of its own, so
// more packets pass.
const maxParts = 4

// part is a set of packets with one verdict.
type part struct {
	saved.Cond
	verdict verdict
	at      []saved.Place
}

// limited produces the rules for packets that exceed the limit of r. It returns the packets that r is certain to match.
func (p *traversal) limited(r *saved.Rule, conds []saved.Cond) (certain []saved.Cond) {
	var doubtful []saved.Cond
	if p.indifferent(r) {
		return nil
	}
	for _, c := range conds {
		l := c.Limit
		c.Limit = nil
		switch {
		case p.translated: // the limit makes no difference here
			doubtful = append(doubtful, c.WithUnknown(l.What))
		case p.exceeded && l.Above, r.Act.Kind == saved.ActNone:
			certain = append(certain, c)
		case p.exceeded:
		case p.overs(r, c, l):
			if !l.Above {
				certain = append(certain, c)
			}
		default:
			doubtful = append(doubtful, c.WithUnknown(l.What))
		}
	}
	if doubtful != nil {
		p.doubtful(r, doubtful)
	}
	return certain
}

// countedAgain reports the limits of a chain that count a packet again each time the packet reaches the chain. known contains the packets that
// reached the chain before.
func (p *traversal) countedAgain(c *saved.Chain, conds, known []saved.Cond) {
	limits, ok := p.limits[c]
	if !ok {
		limits = limitsOf(c, map[*saved.Chain]bool{})
		if p.limits == nil {
			p.limits = map[*saved.Chain][]*saved.Limit{}
		}
		p.limits[c] = limits
	}
	if len(limits) == 0 || !slices.ContainsFunc(conds, func(e saved.Cond) bool { return p.meetsAny(e, known) }) {
		return
	}
	for _, l := range limits {
		p.report.Lose(l.At, "%s: some packets come to it more than once, and it counts them each time; the policy counts them once", l.What)
	}
}

// meetsAny reports whether any packet of c is also in one of list.
func (p *traversal) meetsAny(c saved.Cond, list []saved.Cond) bool {
	return slices.ContainsFunc(list, func(k saved.Cond) bool {
		p.spent++
		_, some := c.And(k).Possible(p.family)
		return some
	})
}

// limitsOf returns the limits of a chain and of the chains that it leads to.
func limitsOf(c *saved.Chain, seen map[*saved.Chain]bool) (list []*saved.Limit) {
	if c == nil || seen[c] {
		return nil
	}
	seen[c] = true
	for _, r := range c.Rules {
		for _, a := range r.Alts {
			if a.Limit != nil && r.Act.Kind != saved.ActNone {
				list = append(list, a.Limit)
			}
		}
		list = append(list, limitsOf(c.Table.Chains[r.Act.Target], seen)...)
	}
	return list
}

// indifferent reports whether r does not change the verdict of any packet.
func (p *traversal) indifferent(r *saved.Rule) bool {
	switch t := p.chain.Table.Chains[r.Act.Target]; r.Act.Kind {
	case saved.ActReturn:
		return inert(p.chain, p.rest, map[*saved.Chain]bool{})
	case saved.ActJump:
		if t != nil && inert(t, t.Rules, map[*saved.Chain]bool{}) {
			t.Visited = true
			p.report.Note(r.At, "chain %s gives no verdict", t.Name)
			return true
		}
	}
	return false
}

// overs produces the rules for packets of c that exceed l. It returns false if they cannot express r.
func (p *traversal) overs(r *saved.Rule, c saved.Cond, l *saved.Limit) bool {
	parts, ok := p.fate(c)
	dropped := 0
	for _, part := range parts {
		if part.verdict != pass {
			dropped++
		}
	}
	if !ok || !p.sure || dropped > maxParts || len(parts) > 2*maxParts {
		return false
	}
	if l.Connections > 0 && dropped < len(parts) {
		return false // a policy has no rule that passes connections above a number
	}
	if l.Less != "" {
		p.report.Lose(r.At, "%s: %s", l.What, l.Less)
	}
	if len(parts) > 1 {
		p.report.Lose(r.At, "%s: other rules decide differently about some of its packets, and the policy counts those apart", l.What)
	}
	for _, part := range parts {
		if part.verdict == pass && r.Act.Kind == saved.ActAccept && !l.Above && p.final {
			continue // these packets pass in either case
		}
		f := flat{Cond: part.Cond, verdict: part.verdict, over: l, comment: r.Comment, chain: p.chain, at: append([]saved.Place{r.At}, part.at...)}
		f.Devices, f.Marks, f.Narrower = nil, nil, nil
		p.out = append(p.out, f)
	}
	return true
}

// severalLimits reports limits whose packets are counted separately because no single rule matches them all.
func severalLimits(list []flat, rep *saved.Report) {
	first := map[*saved.Limit]bool{}
	for _, f := range list {
		if f.over != nil && first[f.over] {
			rep.Lose(f.over.At, "%s: its packets come in several ways, and the policy counts them apart", f.over.What)
		}
		first[f.over] = true
	}
}

// fate divides c by the verdicts that its packets finally get if they exceed all limits. ok is false if there are too many parts.
func (p *traversal) fate(c saved.Cond) (parts []part, ok bool) {
	p.before = append(p.before, fold(p.out[p.folded:])...)
	p.folded = len(p.out)
	left, ok := p.apart([]saved.Cond{c}, p.before, func(saved.Cond, *flat) {}) // earlier rules have decided about all other packets
	if !ok {
		return nil, false
	}
	left, ok = p.apart(left, p.worst, func(both saved.Cond, f *flat) {
		parts = append(parts, part{both, f.verdict, f.at})
	})
	if !ok {
		return nil, false
	}
	for _, l := range left {
		parts = append(parts, part{Cond: l, verdict: pass})
	}
	if len(parts) == 0 { // earlier rules have decided about all packets
		return nil, true
	}
	if !slices.ContainsFunc(parts, func(q part) bool { return q.verdict != parts[0].verdict }) {
		var at []saved.Place
		for _, q := range parts {
			at = append(at, q.at...)
		}
		return []part{{c, parts[0].verdict, at}}, true
	}
	return joinParts(parts), true
}

// apart removes from conds the packets that rules decide. For each such rule, it calls tell with the packets and the rule. ok is false if too many
// parts would be left.
func (p *traversal) apart(conds []saved.Cond, rules []flat, tell func(saved.Cond, *flat)) (left []saved.Cond, ok bool) {
	left = conds
	for i := range rules {
		f := &rules[i]
		if f.over != nil {
			continue
		}
		var rest []saved.Cond
		for _, l := range left {
			p.spent++
			both, some := l.And(f.Cond).Possible(p.family)
			if !some {
				rest = append(rest, l)
				continue
			}
			tell(both, f)
			if !f.Cond.Covers(&l) {
				rest = append(rest, l.Without(f.Cond, p.family)...)
			}
		}
		if left = rest; len(left) > maxPaths || p.exhausted() {
			return nil, false
		}
		if len(left) == 0 {
			break
		}
	}
	return left, true
}

// joinParts joins parts with the same verdict.
func joinParts(parts []part) (out []part) {
	byVerdict := map[verdict][]flat{}
	for _, q := range parts {
		byVerdict[q.verdict] = append(byVerdict[q.verdict], flat{Cond: q.Cond, verdict: q.verdict, at: q.at})
	}
	for _, v := range []verdict{pass, drop, reject} {
		for _, f := range fold(byVerdict[v]) {
			out = append(out, part{f.Cond, v, f.at})
		}
	}
	return out
}

// sharedTables reports rules of hashlimit that count in the same table, if one of them gives a verdict.
func sharedTables(rs *saved.Ruleset, rep *saved.Report) {
	tables, names := map[string][]*saved.Rule{}, []string(nil)
	eachOf(rs, func(r *saved.Rule) {
		for _, c := range r.Alts {
			if c.Limit == nil || c.Limit.Table == "" {
				continue
			}
			name := fmt.Sprint(r.At.File, " ", c.Limit.Table)
			if tables[name] == nil {
				names = append(names, name)
			}
			if !slices.Contains(tables[name], r) {
				tables[name] = append(tables[name], r)
			}
		}
	})
	for _, name := range names {
		of := tables[name]
		if !slices.ContainsFunc(of, func(r *saved.Rule) bool { return r.Act.Kind != saved.ActNone }) {
			continue
		}
		for _, r := range of[1:] {
			rep.Lose(r.At, "-m hashlimit: it counts together with %s, and in the policy each for itself", where(of[0].At))
		}
	}
}
