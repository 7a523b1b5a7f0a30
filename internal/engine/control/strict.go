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
func (t *transaction) warnStrict() {
	if !t.manifest.Strict() || t.now != nil && t.now.Manifest.Strict() {
		return
	}
	if !facts.Tracks() {
		t.note("conntrack has no connections yet, so those that stand with protected services behind this host will " +
			"be unknown to it and end: to spare them, load some rule that asks for `ct state` an hour before")
	}
}

// beStrict makes conntrack strict before a ruleset decides that needs it. Where there was no conntrack before, it comes with the rulesets,
// and this is the step after them, too.
func (t *transaction) beStrict(context.Context) error {
	if !t.manifest.Strict() {
		return nil
	}
	return netfilter.Keep(t.state, true)
}

// strictAsBefore has conntrack be what the generations need that run when the change begins.
func (t *transaction) strictAsBefore(context.Context) error {
	return strictFor(t.state, t.live.Manifests()...)
}

// strictAsNext has conntrack be what the next generation needs.
func (t *transaction) strictAsNext(context.Context) error { return strictFor(t.state, t.manifest) }

// strictFor makes conntrack strict if one of the remaining generations needs that, and else restores the host's setting.
func strictFor(state *datapath.State, remain ...*manifest.Manifest) error {
	return netfilter.Keep(state, slices.ContainsFunc(remain, (*manifest.Manifest).Strict))
}
