// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"testing"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// TestDividedCounts has a rule and a default that are counted both in XDP and in netfilter. The count must be the sum of both. It must stay correct
// from one generation to the next.
func TestDividedCounts(t *testing.T) {
	slots := make([]image.Counter, image.SlotRules+1)
	slots[image.SlotDefault].Packets, slots[image.SlotRules].Packets = 1000, 100
	rule := Rule{Name: "bad", Slot: image.SlotRules, Stage: plan.StageXDP, Also: plan.StageFilter, Fingerprint: 7}
	at := plan.Assignment{Stage: plan.StageXDP, Also: plan.StageFilter}
	named := &netfilter.Ruleset{Rules: []string{"rule-bad"}, Default: "default"}
	c := &Counts{Manifest: &Manifest{Default: "drop", At: at, Rules: []Rule{rule}}, Program: true, slots: slots, Ruleset: named,
		Named: map[string]Count{"rule-bad": {Packets: 10}, "default": {Packets: 20}}}
	if rule, def := c.Rule(0, rule).Packets, c.ByDefault().Packets; rule != 110 || def != 1020 {
		t.Errorf("counted %d and %d, want 110 and 1020", rule, def)
	}
	for _, tt := range []struct {
		what                                       string
		stage, also                                plan.Stage
		seedRule, seedDefault, addRule, addDefault uint64 // initial values of netfilter's counters, and the additions to all counters
	}{
		{"divided", plan.StageXDP, plan.StageFilter, 10, 20, 0, 0},
		{"in XDP alone", plan.StageXDP, "", 10, 20, 10, 20}, // no counter in netfilter could start with a value
		{"at filter alone", plan.StageFilter, "", 110, 1020, 0, 0},
	} {
		then := rule
		then.Stage, then.Also = tt.stage, tt.also
		next := &Manifest{Default: "drop", At: plan.Assignment{Stage: tt.stage, Also: tt.also}, Rules: []Rule{then}, Rulesets: []*netfilter.Ruleset{named}}
		seeds, more := c.Stay(next), c.GoesOn(next)
		got := [4]uint64{seeds["rule-bad"].Packets, seeds["default"].Packets, more.Rules[0].Packets, more.Default.Packets}
		if want := [4]uint64{tt.seedRule, tt.seedDefault, tt.addRule, tt.addDefault}; got != want {
			t.Errorf("%s: %v, want %v", tt.what, got, want)
		}
	}
}
