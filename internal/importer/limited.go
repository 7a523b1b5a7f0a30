package importer

import (
	"fmt"
	"slices"
)

// A rule that asks for a rate divides the packets that get to it: those that exceed the limit, and the others. In the
// policy one rule with `over` takes the first kind and gives them the verdict that they come to in the end; behind it
// there are only the others. Their end is found by a walk in which every limit is exceeded (walker.worst).

// maxParts is into how many rules the packets that exceed a limit are divided by their verdict. Each has a limit of its
// own, so that more packets pass.
const maxParts = 4

// part is packets with one verdict.
type part struct {
	cond
	verdict verdict
	at      []place
}

// limited writes down what becomes of packets that exceed the limit of r, and returns those of which r is certain then.
func (p *passage) limited(r *rule, conds []cond) (certain []cond) {
	var doubtful []cond
	if p.indifferent(r) {
		return nil
	}
	for _, c := range conds {
		l := c.limit
		c.limit = nil
		switch {
		case p.translated: // nobody asks how much
			doubtful = append(doubtful, c.withUnknown(l.what))
		case p.exceeded && l.above, r.act.kind == actNone:
			certain = append(certain, c)
		case p.exceeded:
		case p.overs(r, c, l):
			if !l.above {
				certain = append(certain, c)
			}
		default:
			doubtful = append(doubtful, c.withUnknown(l.what))
		}
	}
	if doubtful != nil {
		p.doubtful(r, doubtful)
	}
	return certain
}

// indifferent reports whether r makes no difference to any packet's verdict.
func (p *passage) indifferent(r *rule) bool {
	switch t := p.chain.table.chains[r.act.target]; r.act.kind {
	case actReturn:
		return p.chain.inert(p.rest, map[*chain]bool{})
	case actJump:
		if t != nil && t.inert(t.rules, map[*chain]bool{}) {
			t.visited = true
			p.report.note(r.at, "chain %s gives no verdict", t.name)
			return true
		}
	}
	return false
}

// overs writes down the rules for packets of c that exceed l. It reports whether they say what r does.
func (p *passage) overs(r *rule, c cond, l *limit) bool {
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
	if l.less != "" {
		p.report.lose(r.at, "%s: %s", l.what, l.less)
	}
	if len(parts) > 1 {
		p.report.lose(r.at, "%s: other rules decide differently about some of its packets, and the policy counts those apart", l.what)
	}
	for _, part := range parts {
		if part.verdict == pass && r.act.kind == actAccept && !l.above && p.final {
			continue // they pass either way
		}
		f := flat{cond: part.cond, verdict: part.verdict, over: l, comment: r.comment, chain: p.chain, at: append([]place{r.at}, part.at...)}
		f.devices, f.marks, f.narrower = nil, nil, nil
		p.out = append(p.out, f)
	}
	return true
}

// severalLimits loses that packets of one limit are counted apart, as no single rule matches them all.
func severalLimits(list []flat, rep *report) {
	first := map[*limit]bool{}
	for _, f := range list {
		if f.over != nil && first[f.over] {
			rep.lose(f.over.at, "%s: its packets come in several ways, and the policy counts them apart", f.over.what)
		}
		first[f.over] = true
	}
}

// fate divides c by the verdicts that its packets come to if they exceed all limits. ok is false when there are too many
// parts.
func (p *passage) fate(c cond) (parts []part, ok bool) {
	p.before = append(p.before, fold(p.out[p.folded:])...)
	p.folded = len(p.out)
	left, ok := p.apart([]cond{c}, p.before, func(cond, *flat) {}) // the others are decided before
	if !ok {
		return nil, false
	}
	left, ok = p.apart(left, p.worst, func(both cond, f *flat) {
		parts = append(parts, part{both, f.verdict, f.at})
	})
	if !ok {
		return nil, false
	}
	for _, l := range left {
		parts = append(parts, part{cond: l, verdict: pass})
	}
	if len(parts) == 0 { // all are decided before
		return nil, true
	}
	if !slices.ContainsFunc(parts, func(q part) bool { return q.verdict != parts[0].verdict }) {
		var at []place
		for _, q := range parts {
			at = append(at, q.at...)
		}
		return []part{{c, parts[0].verdict, at}}, true
	}
	return joinParts(parts), true
}

// apart takes out of conds the packets that rules decide, of which it tells with each such rule. ok is false when too many
// parts would be left.
func (p *passage) apart(conds []cond, rules []flat, tell func(cond, *flat)) (left []cond, ok bool) {
	left = conds
	for i := range rules {
		f := &rules[i]
		if f.over != nil {
			continue
		}
		var rest []cond
		for _, l := range left {
			p.spent++
			both, some := l.and(f.cond).possible(p.family)
			if !some {
				rest = append(rest, l)
				continue
			}
			tell(both, f)
			if !f.cond.covers(&l) {
				rest = append(rest, l.without(f.cond, p.family)...)
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

// joinParts makes few parts of those with the same verdict.
func joinParts(parts []part) (out []part) {
	byVerdict := map[verdict][]flat{}
	for _, q := range parts {
		byVerdict[q.verdict] = append(byVerdict[q.verdict], flat{cond: q.cond, verdict: q.verdict, at: q.at})
	}
	for _, v := range []verdict{pass, drop, reject} {
		for _, f := range fold(byVerdict[v]) {
			out = append(out, part{f.cond, v, f.at})
		}
	}
	return out
}

// sharedTables loses that several rules of hashlimit count in one table.
func (rs *ruleset) sharedTables(rep *report) {
	first := map[string]place{}
	rs.any(ipv4|ipv6, func(r *rule) bool {
		seen := ""
		for _, c := range r.alts {
			if c.limit != nil && c.limit.table != "" {
				seen = fmt.Sprint(r.at.file, " ", c.limit.table)
			}
		}
		if at, ok := first[seen]; ok && seen != "" {
			rep.lose(r.at, "-m hashlimit: it counts together with %s, and in the policy each for itself", where(at))
		} else if seen != "" {
			first[seen] = r.at
		}
		return false
	})
}
