package control

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/hostfacts"
	"github.com/floodwall/floodwall/internal/manifest"
)

// warnStrict notes what a strict conntrack does to connections from before it.
func (p *planned) warnStrict() {
	if !p.manifest.Strict() || p.running.generation != nil && p.running.generation.manifest.Strict() {
		return
	}
	if !hostfacts.Tracks() {
		p.notes = append(p.notes, "conntrack has no connections yet, so those that stand with protected services behind this host will "+
			"be unknown to it and end: to spare them, load some rule that asks for `ct state` an hour before")
	}
}

// beStrict makes conntrack strict. What the host had is in the state before that, where it is found however this process
// ends.
func beStrict(state *datapath.State) error {
	was, err := hostfacts.Loose()
	if was == nil || *was == 0 || err != nil {
		return err
	}
	if err := state.KeepSetting([]byte(strconv.Itoa(*was))); err != nil {
		return err
	}
	return hostfacts.SetLoose(0)
}

// strictFor makes conntrack strict when one of the generations that remain needs that, and else what the host had it be.
func strictFor(state *datapath.State, remain ...*manifest.Manifest) error {
	if slices.ContainsFunc(remain, (*manifest.Manifest).Strict) {
		return beStrict(state)
	}
	was, err := state.HostSetting()
	if was == nil || err != nil {
		return err
	}
	n, err := strconv.Atoi(string(was))
	if err != nil {
		return fmt.Errorf("what %s was: %w", hostfacts.LooseFile, err)
	}
	if err := hostfacts.SetLoose(n); err != nil {
		return err
	}
	return state.ForgetSetting()
}

// strictly has fn load rulesets with conntrack strict before any of them decides, if their generation needs it. Where there
// was no conntrack before, it comes with them.
func strictly(state *datapath.State, m *manifest.Manifest, fn func() error) error {
	if !m.Strict() {
		return fn()
	}
	for _, step := range []func() error{func() error { return beStrict(state) }, fn} {
		if err := step(); err != nil {
			return err
		}
	}
	return beStrict(state)
}

// loadStrictly loads the rulesets in netfilter, and has undo bring back what conntrack was.
func (s *switchover) loadStrictly(ctx context.Context) error {
	s.done = append(s.done, func() error {
		if s.running.live == nil {
			return strictFor(s.running.state)
		}
		return strictFor(s.running.state, s.running.live.manifests()...)
	})
	return strictly(s.running.state, s.manifest, func() error { return s.loadRulesets(ctx) })
}
