// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"cmp"
	"slices"

	"github.com/floodwall/floodwall/internal/engine/control"
)

// Amount is a number of packets, and the bytes of their frames.
type Amount struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Add adds another Amount.
func (a *Amount) Add(more Amount) { a.Packets, a.Bytes = a.Packets+more.Packets, a.Bytes+more.Bytes }

// Increase is the number of packets about which a rule, a check or the default decided between two readings of the counters.
type Increase struct {
	Name    string `json:"name"`
	Verdict string `json:"verdict"`
	Stage   string `json:"stage"`
	Observe bool   `json:"observe,omitempty"` // the rule only counts packets
	Beside  bool   `json:"beside,omitempty"`  // another reason counts the same packets also, or this host sent the packets
	Amount
}

// Increases lists the reasons that counted packets between two readings, the most frequent first. It also returns the sums of passed and of dropped
// packets. A counter that is smaller than before belongs to a new rule.
func Increases(before, after *control.Status) (list []Increase, passed, dropped Amount) {
	old := map[string]control.RuleStatus{}
	for _, r := range everything(before) {
		old[r.Name] = r
	}
	list = []Increase{}
	for _, r := range everything(after) {
		more := Amount{increase(r.Packets, old[r.Name].Packets), increase(r.Bytes, old[r.Name].Bytes)}
		switch {
		case more.Packets == 0:
			continue
		case r.Observe, r.Beside:
		case r.Verdict == "pass":
			passed.Add(more)
		default:
			dropped.Add(more)
		}
		list = append(list, Increase{r.Name, r.Verdict, string(r.Stage), r.Observe, r.Beside, more})
	}
	slices.SortStableFunc(list, func(a, b Increase) int { return cmp.Compare(b.Packets, a.Packets) })
	return list, passed, dropped
}

// increase returns how much a counter has grown. The counter of a new rule begins at 0.
func increase(now, before uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}

// everything returns all rules, checks and defaults.
func everything(s *control.Status) []control.RuleStatus {
	return slices.Concat(s.Rules, s.Checks, []control.RuleStatus{s.Default, s.NotIP})
}
