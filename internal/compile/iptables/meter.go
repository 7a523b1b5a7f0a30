// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// metered adds the lines of a condition for a rule that has limits or only counts. If several alternatives of the condition can match one packet, two
// chains ensure that the packet is charged and counted only once. The first chain leads to the second by -g. So a packet that the second chain does
// not decide continues after the rule.
func (f *familyBuilder) metered(t *table, r *ir.Rule, c condition, mark lineMark) {
	simple := len(c.any) == 1 && len(c.not) == 0
	if r.Connections != nil {
		f.counting(t, r, c, mark)
		return
	}
	switch {
	case simple && r.Observe && len(r.Over) <= 1:
		f.exceeding(t.at, c.any[0], r, mark, "")
		return
	case simple && r.Verdict != ir.Reject && !r.Observe:
		f.exceeding(t.at, c.any[0], r, mark, "")
		return
	case r.Verdict == ir.Pass && !r.Observe:
		f.refuse(r, "over", "what passes leaves our chains from the first of them only, and the rule needs more than one",
			"ask for one protocol and for addresses of one set, or use --target nftables")
		return
	}
	last := t.chain(f.chainName(r.Name))
	f.exceeding(last, lineTests{}, r, mark, "RETURN")
	f.leading(t, r, c, last)
}

// leading adds lines that lead packets for which a condition holds to the chain last. Each packet gets there only once. Packets that this chain does
// not decide continue after these lines.
func (f *familyBuilder) leading(t *table, r *ir.Rule, c condition, last *chain) {
	if len(c.any) == 1 && len(c.not) == 0 {
		t.at.add("%s-j %s", c.any[0], last.name)
		return
	}
	first := t.chain(f.chainName(r.Name))
	ask := lineTests{proto: sameProto(c)}
	if searches(c.any) {
		if shared, left, ok := parted(c.any); ok {
			ask, c.any = shared, left
		}
	}
	t.at.add("%s-j %s", ask, first.name)
	for _, a := range c.not {
		first.add("%s-j RETURN", a)
	}
	for _, a := range c.any {
		first.add("%s-g %s", a, last.name)
	}
}

// counting adds the lines of a condition for a rule that counts connections. The kernel keeps a separate count for each line. So the line that counts
// is in a chain of its own, and all alternatives of the rule lead to this chain.
func (f *familyBuilder) counting(t *table, r *ir.Rule, c condition, mark lineMark) {
	last := f.crowds[r.Name]
	if last == nil {
		last = t.chain(f.chainName(r.Name))
		beyond := t.chain(f.chainName(r.Name))
		last.add("%s -g %s", f.crowded(r.Connections), beyond.name)
		if r.Observe {
			f.line(beyond, lineTests{}, "RETURN", mark)
		} else {
			f.verdict(beyond, lineTests{}, r.Verdict, mark)
		}
		f.crowds[r.Name] = last
	}
	f.leading(t, r, c, last)
}

// sameProto returns the protocol for which all alternatives of a condition test. It returns "" if they test for different protocols or none.
func sameProto(c condition) (proto string) {
	for i, a := range c.any {
		if i > 0 && a.proto != proto {
			return ""
		}
		proto = a.proto
	}
	return proto
}

// exceeding adds the lines for packets that exceed any limit of a rule. If the rule has no limits, the lines are for all packets. If the rule only
// counts, onward is the target of these lines. "" means the next line.
func (f *familyBuilder) exceeding(c *chain, a lineTests, r *ir.Rule, mark lineMark, onward string) {
	matches := []lineTests{{}}
	if len(r.Over) > 0 {
		matches = nil
	}
	for _, limit := range r.Over {
		if f.pl.Program.Limits[limit].Lenient {
			continue
		}
		matches = append(matches, lineTests{match: []string{f.over(limit)}})
	}
	for _, over := range matches {
		switch {
		case r.Observe:
			f.line(c, a.and(over), onward, mark)
		case r.Verdict == ir.Reject:
			f.line(c, a.and(lineTests{proto: "tcp"}).and(over), rejectTCP, mark)
			f.line(c, a.and(lineTests{proto: "! tcp"}).and(over), rejectOther[f.family], mark)
		default:
			f.verdict(c, a.and(over), r.Verdict, mark)
		}
	}
}

// refuse records the error that iptables cannot express a rule.
func (f *familyBuilder) refuse(r *ir.Rule, key, cause, remedy string) {
	if f.err == nil {
		f.err = &plan.StageError{File: f.pl.Program.File, Rule: r.Name, Line: r.Line, Col: r.Col, Key: key, Cause: cause, Remedy: remedy}
	}
}
