// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"

	"github.com/floodwall/floodwall/internal/compile/iptables"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// LiveElements returns the elements that a program has for the ruleset's live sets, by the name of the set in netfilter. The result has every live
// set, including empty ones.
func (p *Ruleset) LiveElements(of *ir.Program) map[string][]Element {
	out := map[string][]Element{}
	for i := range of.Sets {
		s := &of.Sets[i]
		names, ok := p.Live[s.Name]
		if !ok || !s.Live {
			continue
		}
		for _, name := range names.Names() {
			out[name] = nil
		}
		for prefix := range s.Static.Prefixes() {
			if name := names.Of(prefix); name != "" { // "" if no rule uses this family
				out[name] = append(out[name], Element{Prefix: prefix})
			}
		}
	}
	return out
}

// FillLive sets the initial elements of the ruleset's live sets from a program.
func (p *Ruleset) FillLive(of *ir.Program) {
	for name, elements := range p.LiveElements(of) {
		if len(elements) > 0 {
			p.Fill[name] = elements
		}
	}
}

func (t nftTool) Exchange(ctx context.Context, p *Ruleset, content map[string][]Element) error {
	return t.Nft.Exchange(ctx, p.Name, content)
}

func (t iptablesTool) Exchange(ctx context.Context, p *Ruleset, content map[string][]Element) error {
	return t.Iptables.Exchange(ctx, p.Name, content, iptables.LiveSet)
}
