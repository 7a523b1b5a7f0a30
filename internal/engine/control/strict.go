package control

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/host/boot"
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

// warnSaved adds notes on saved rules: those that hold some of this program, and what saving does from the first policy for iptables on.
func (t *transaction) warnSaved() {
	if files := boot.SavedWithOwn(os.DirFS("/")); files != nil {
		t.note(fmt.Sprintf("rules of Floodwall are in %s, which cannot be restored at boot as they are: `floodwall doctor` has the command that takes them out",
			strings.Join(files, ", ")))
	}
	if t.target == plan.TargetIptables && (t.now == nil || t.now.Manifest.Target != plan.TargetIptables) {
		t.note("from now on iptables-save prints chains of Floodwall, too, and iptables-restore refuses them without their ipsets, with all other rules: " +
			"save by `iptables-save | " + boot.LeaveOut + "`, and ip6tables-save and `nft list ruleset` likewise")
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
