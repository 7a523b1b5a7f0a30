// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
)

// Optimize returns a program that gives every packet the same verdict, and the same reason wherever the policy names
// it. In that program
//   - unnamed rules that differ only in one key are one rule with a set;
//   - there is no rule that an earlier one covers, except those of protections, and no rule that cannot match.
//
// It returns a note for each rule that is covered or was removed, because such a rule is usually a mistake.
func Optimize(p *ir.Program) (*ir.Program, []string) {
	out := *p
	out.Sets = slices.Clone(p.Sets)
	rules, impossible := dropImpossible(p)
	rules = merge(&out, rules) // comes first, because it leaves few of many thousand imported rules to compare
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

// dropShadowed removes every rule that a single earlier rule covers.
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

// untracks reports whether r is the rule of a service that is exempt from conntrack. The exemption has an effect even if other rules decide all
// packets of the service.
func untracks(p *ir.Program, r *ir.Rule) bool {
	return r.Kind == ir.RuleKindService &&
		slices.ContainsFunc(p.Untracked.Services, func(s ir.UntrackedService) bool { return s.Name == r.Name })
}

// shadowNote returns a note about rule r, all of whose packets match the earlier rule by. It returns "" if no note is needed.
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
