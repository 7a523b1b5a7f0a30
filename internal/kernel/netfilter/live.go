package netfilter

import (
	"context"

	"github.com/floodwall/floodwall/internal/compile/iptables"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// LiveElements are what the live sets of a ruleset hold of a program, by their names in netfilter. Each of them is there, if only
// with nothing.
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
			if name := names.Of(prefix); name != "" { // "" where no rule asks for the family
				out[name] = append(out[name], Element{Prefix: prefix})
			}
		}
	}
	return out
}

// FillLive has a ruleset begin with what a program's live sets hold.
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
