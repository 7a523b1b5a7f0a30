package control

import (
	"context"
	"slices"

	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// warnStrict adds the note on what a strict conntrack does to connections from before.
func (p *planned) warnStrict() {
	if !p.manifest.Strict() || p.running.generation != nil && p.running.generation.Manifest.Strict() {
		return
	}
	if !facts.Tracks() {
		p.notes = append(p.notes, "conntrack has no connections yet, so those that stand with protected services behind this host will "+
			"be unknown to it and end: to spare them, load some rule that asks for `ct state` an hour before")
	}
}

// strictFor makes conntrack strict if one of the remaining generations needs that, and else restores the host's setting.
func strictFor(state *datapath.State, remain ...*manifest.Manifest) error {
	return netfilter.Keep(state, slices.ContainsFunc(remain, (*manifest.Manifest).Strict))
}

// strictly runs fn, which loads rulesets, with conntrack strict before any of them decides, if their generation needs it.
func strictly(state *datapath.State, m *manifest.Manifest, fn func() error) error {
	if !m.Strict() {
		return fn()
	}
	return netfilter.Load(state, fn)
}

// loadStrictly loads the rulesets in netfilter, and has undo bring back what conntrack was.
func (s *switchover) loadStrictly(ctx context.Context) error {
	s.done = append(s.done, func() error {
		if s.running.live == nil {
			return strictFor(s.running.state)
		}
		return strictFor(s.running.state, s.running.live.Manifests()...)
	})
	return strictly(s.running.state, s.manifest, func() error { return s.loadRulesets(ctx) })
}
