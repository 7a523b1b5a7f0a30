// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
)

// sourcesLast returns a program in which tests of sources in essential rules are conditions, which are tested last. Few packets reach these rules,
// but a class for the source would cost every packet a lookup. Only XDP needs this change, because it looks up addresses before it tests rules.
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
