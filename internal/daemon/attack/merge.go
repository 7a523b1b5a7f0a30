// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"slices"
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/suggest"
)

// merged combines a new rule with an existing one into a rule for the packets of both. It does so for near-duplicates, and also for rules against
// reflectors when no more rules may be added. A combined rule that does harm is not used.
func (a *automatic) merged(s suggest.Rule, c conditions) (suggest.Rule, string) {
	for _, r := range a.rules {
		merged := suggest.Merge(r.Signature, s.Signature)
		if merged == nil || len(a.rules) < c.bounds.Max && merged.Wider(r.Signature) || a.rejected[merged.Tests()] || merged.Same(r.Signature) {
			continue
		}
		if m, ok := c.fits(merged); ok {
			return m, r.Name
		}
	}
	return s, ""
}

// withoutReplaced removes rules that are replaced by another rule that drops.
func (a *automatic) withoutReplaced(rules []*measured, now time.Time) []*measured {
	by := map[string]string{}
	for _, r := range rules {
		for _, name := range r.replaces {
			if r.drops() {
				by[name] = r.Name
			}
		}
	}
	return slices.DeleteFunc(rules, func(r *measured) bool {
		name, gone := by[r.Name]
		if gone {
			a.gone = append(a.gone, Step{now.UTC(), r.Name, Removed, r.Rule, name + " matches what it matches"})
		}
		return gone
	})
}

// fits returns a function that measures a rule by the packets that passed in the last moments. It reports whether the rule may be added.
func (w *Watcher) fits(unfit func(*suggest.Signature) string) func(*suggest.Signature) (suggest.Rule, bool) {
	good := sync.OnceValues(w.good) // decodes all learned samples
	return func(g *suggest.Signature) (suggest.Rule, bool) {
		quiet, err := good()
		if err != nil || quiet == nil || unfit(g) != "" {
			return suggest.Rule{}, false
		}
		r := suggest.Measure(g, "merged", w.traffic.window.passing(w.at, searchSpan), w.traffic.good(quiet))
		return r, r.Collateral != nil && r.Collateral.High <= w.settings.Auto.Collateral && r.Collateral.Cut == 0
	}
}
