package compile

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
)

// Optimize returns a program with the same verdict for every packet, and the same reason wherever the policy names it,
// in which
//   - rules that nobody named and that differ only in one key are one rule with a set;
//   - no rule is left that an earlier one covers, but for those of protections, or that nothing can match.
//
// It returns a note for each rule that is covered or was dropped: as a rule the operator did not mean that.
func Optimize(p *ir.Program) (*ir.Program, []string) {
	out := *p
	out.Sets = slices.Clone(p.Sets)
	rules, impossible := dropImpossible(p)
	rules = merge(&out, rules) // first: it leaves few of many thousand imported rules to compare
	rules, shadowed := dropShadowed(&out, rules)
	out.Rules = rules
	return &out, append(impossible, shadowed...)
}

func dropImpossible(p *ir.Program) (kept []ir.Rule, notes []string) {
	for _, r := range p.Rules {
		if f, ok := match.Impossible(r); ok {
			notes = append(notes, fmt.Sprintf("%srule %q can never match: nothing satisfies its %s", p.Place(r.Line, r.Col), r.Name, f))
			continue
		}
		kept = append(kept, r)
	}
	return kept, notes
}

// dropShadowed drops every rule that some single earlier rule covers.
func dropShadowed(p *ir.Program, rules []ir.Rule) (kept []ir.Rule, notes []string) {
	sets := p.Sets
	index := newCoverIndex(sets)
	for _, r := range rules {
		by := index.find(&r, func(i int) bool { return match.Covers(sets, &kept[i], &r) })
		if by < 0 || r.Protect > 0 {
			index.add(&r, len(kept))
			kept = append(kept, r)
		}
		if by < 0 || untracks(p, &r) {
			continue
		}
		if note := shadowNote(&kept[by], &r); note != "" {
			notes = append(notes, p.Place(r.Line, r.Col)+note)
		}
	}
	return kept, notes
}

// untracks reports whether r is the rule of a service that keeps its packets out of conntrack, which it does whatever other rules decide.
func untracks(p *ir.Program, r *ir.Rule) bool {
	return r.Kind == ir.RuleKindService &&
		slices.ContainsFunc(p.Untracked.Services, func(s ir.UntrackedService) bool { return s.Name == r.Name })
}

// shadowNote tells the operator about a rule that is dropped because one before it takes all its packets.
func shadowNote(by, r *ir.Rule) string {
	switch {
	case r.Protect > 0:
		return fmt.Sprintf("%q protects nothing: %q (line %d) takes all its packets before", r.Name, by.Name, by.Line)
	case r.Kind == ir.RuleKindEssential || asksReply(r) || r.Unnamed && r.Verdict == by.Verdict:
		return ""
	case r.Verdict != by.Verdict:
		return fmt.Sprintf("%q never decides: %q (line %d) takes all its packets before", r.Name, by.Name, by.Line)
	}
	return fmt.Sprintf("%q is not needed: %q (line %d) does the same before", r.Name, by.Name, by.Line)
}
