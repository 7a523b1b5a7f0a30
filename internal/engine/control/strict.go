// SPDX-License-Identifier: Apache-2.0

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

// warnStrict adds a note if conntrack must become strict but has no connections yet. Connections of services behind this host then end, because a
// strict conntrack has not seen their start.
func (t *transaction) warnStrict() {
	if !t.manifest.Strict() || t.now != nil && t.now.Manifest.Strict() {
		return
	}
	if !facts.Tracks() {
		t.note("conntrack has no connections yet, so those that stand with protected services behind this host will " +
			"be unknown to it and end: to spare them, load some rule that asks for `ct state` an hour before")
	}
}

// warnSaved adds notes on saved rules. One note names saved files that have rules of Floodwall. With the first policy for iptables, another note
// describes the effect of saving those rules.
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

// beStrict makes conntrack strict before a ruleset that needs strict conntrack decides. If conntrack is not loaded yet, the rulesets load it, so the
// step is repeated after the rulesets are loaded.
func (t *transaction) beStrict(context.Context) error {
	if !t.manifest.Strict() {
		return nil
	}
	return netfilter.Keep(t.state, true)
}

// strictAsBefore makes conntrack strict if a generation that ran when the change started needs it. Otherwise it restores the host's setting.
func (t *transaction) strictAsBefore(context.Context) error {
	return strictFor(t.state, t.live.Manifests()...)
}

// strictAsNext makes conntrack strict if the next generation needs it. Otherwise it restores the host's setting.
func (t *transaction) strictAsNext(context.Context) error { return strictFor(t.state, t.manifest) }

// strictFor makes conntrack strict if one of the remaining generations needs it. Otherwise it restores the host's setting.
func strictFor(state *datapath.State, remain ...*manifest.Manifest) error {
	return netfilter.Keep(state, slices.ContainsFunc(remain, (*manifest.Manifest).Strict))
}
