package xdp

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
)

// sourcesLast moves the tests of sources of essential rules into conditions, which are tested last. Few packets reach
// these, while a class of source would cost each packet a lookup. Only XDP needs it, because it looks addresses up
// before it tests rules.
func sourcesLast(p *ir.Program) *ir.Program {
	out := *p
	out.Rules = slices.Clone(p.Rules)
	for i := range out.Rules {
		r := &out.Rules[i]
		if r.Kind != ir.RuleKindEssential || len(r.Src) != 1 || r.Src[0].Not || len(r.Src[0].Sets) != 1 {
			continue
		}
		set := p.Sets[r.Src[0].Sets[0]].Static
		if prefixes := slices.Collect(set.Prefixes()); len(prefixes) <= maxSources {
			r.Src, r.Sources = nil, prefixes
		}
	}
	return &out
}
