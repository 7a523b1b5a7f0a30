package manifest

import (
	"slices"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// Ruleset is the ruleset of a policy that decides, nil when XDP does all.
func (m *Manifest) Ruleset() *netfilter.Ruleset {
	if len(m.Rulesets) == 0 {
		return nil
	}
	return m.Rulesets[0]
}

// AllRulesets are the rulesets that there are during a trial.
func (m *Manifest) AllRulesets() []*netfilter.Ruleset { return slices.Concat(m.Rulesets, m.StandIn) }

// RulesetOf is the ruleset of a kind, nil when there is none.
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

// CounterOf is the counter in netfilter of a rule, by its index; "" where it has none.
func (m *Manifest) CounterOf(rule int) string {
	if i := rule - (len(m.Rules) - len(m.Temporary)); m.TemporaryRuleset != nil && i >= 0 && m.Rules[rule].Temporary {
		return TemporaryCounter(m.TemporaryRuleset.Rules[i])
	}
	if p := m.Ruleset(); p != nil && rule < len(p.Rules) {
		return p.Rules[rule]
	}
	return ""
}

// TemporaryCounter tells a counter of a ruleset of temporary rules from that of the policy that has the same name.
func TemporaryCounter(name string) string { return "temporary/" + name }

// Uncounted reports whether a generation does not count what its default decides.
func (m *Manifest) Uncounted() bool {
	return m.At.Stage != plan.StageXDP && m.Ruleset().DefaultCounter() == ""
}
