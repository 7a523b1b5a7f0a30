// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"slices"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Decision is a verdict, its reason, and the stage that gives it.
type Decision struct {
	Verdict, Reason string
	Stage           plan.Stage
}

// Decision returns the first decision whose counter has increased and whose verdict fits drops. moved are the names of the increased counters. drops
// says whether the packet was dropped.
func (m *Manifest) Decision(from *netfilter.Ruleset, moved []string, drops bool) (Decision, bool) {
	names := map[string]bool{}
	for _, name := range moved {
		names[name] = true
	}
	for _, c := range m.decisions(from) {
		if names[c.counter] && (c.Verdict != ir.Pass.String()) == drops {
			return c.Decision, true
		}
	}
	return Decision{}, false
}

// Proxied returns the decision about a packet of a protected service: either SYNPROXY has taken it, as the rule of the protection says, or it was
// dropped as invalid next to SYNPROXY. moved are the names of the increased counters.
func (m *Manifest) Proxied(from *netfilter.Ruleset, moved []string) (Decision, bool) {
	for number, of := range from.Proxies {
		rule := slices.IndexFunc(m.Rules, func(r Rule) bool { return r.Protect == number+1 })
		switch {
		case rule < 0:
		case slices.Contains(moved, of.Proxied):
			return Decision{m.Rules[rule].Verdict, m.Rules[rule].Name, plan.StageFilter}, true
		case slices.Contains(moved, of.Invalid):
			return Decision{ir.Drop.String(), m.Protections[number].Name(ir.AckInvalid), plan.StageFilter}, true
		}
	}
	return Decision{}, false
}

// counted is a decision and the name of its counter in netfilter.
type counted struct {
	Decision
	counter string
}

// decisions lists the decisions of a ruleset: checks, rules in their order, and the default. It leaves out rules and checks that only count.
func (m *Manifest) decisions(from *netfilter.Ruleset) (list []counted) {
	for name, counter := range from.Checks {
		check, _ := packet.CheckNamed(name)
		if m.Observed.Has(check) {
			continue
		}
		list = append(list, counted{Decision{ir.Drop.String(), name, m.CheckStage(check)}, counter})
	}
	for i, r := range m.Rules {
		if i < len(from.Rules) && from.Rules[i] != "" && !r.Observe {
			list = append(list, counted{Decision{r.Verdict, r.Name, r.Stage}, from.Rules[i]})
		}
	}
	return append(list, counted{Decision{m.Default, "default", m.At.Stage}, from.Default})
}
