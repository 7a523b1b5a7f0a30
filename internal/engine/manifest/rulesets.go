// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"slices"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// Ruleset returns the ruleset that decides for the policy. It returns nil when XDP decides everything.
func (m *Manifest) Ruleset() *netfilter.Ruleset {
	if len(m.Rulesets) == 0 {
		return nil
	}
	return m.Rulesets[0]
}

// AllRulesets returns the rulesets that the policy has in the kernel during a trial.
func (m *Manifest) AllRulesets() []*netfilter.Ruleset { return slices.Concat(m.Rulesets, m.StandIn) }

// RulesetOf returns the ruleset of a kind, nil when there is none.
func (m *Manifest) RulesetOf(k netfilter.Kind) *netfilter.Ruleset {
	if m != nil {
		for _, p := range m.Rulesets {
			if p.Kind == k {
				return p
			}
		}
	}
	return nil
}

// CounterOf returns the name of the netfilter counter of a rule. rule is the index of the rule in the manifest. It returns "" when the rule has no
// such counter.
func (m *Manifest) CounterOf(rule int) string {
	if i := rule - (len(m.Rules) - len(m.Temporary)); m.TemporaryRuleset != nil && i >= 0 && m.Rules[rule].Temporary {
		return TemporaryCounter(m.TemporaryRuleset.Rules[i])
	}
	if p := m.Ruleset(); p != nil && rule < len(p.Rules) {
		return p.Rules[rule]
	}
	return ""
}

// TemporaryCounter returns the key for a counter of temporary rules. The prefix is needed because a counter of the policy's ruleset may have the same
// name.
func TemporaryCounter(name string) string { return "temporary/" + name }

// Uncounted reports whether a generation does not count the packets that its default decides.
func (m *Manifest) Uncounted() bool {
	return m.At.Stage != plan.StageXDP && m.Ruleset().DefaultCounter() == ""
}
