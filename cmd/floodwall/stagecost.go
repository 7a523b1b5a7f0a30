// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/cost"
)

// stageCost is the cost of a packet that is dropped at a stage. The cost was measured on this host, and excludes the rules.
type stageCost struct {
	Stage   plan.Stage `json:"stage"`
	Drop    float64    `json:"drop_ns"`
	Tracked float64    `json:"tracked_drop_ns"` // with conntrack
}

// stageCosts returns the costs of a target's stages, or nil without a cost model.
func stageCosts(m *cost.Model, t plan.Target) (list []stageCost) {
	if m == nil {
		return nil
	}
	for _, s := range t.Stages() {
		list = append(list, stageCost{s, m.Drop(string(s), false), m.Drop(string(s), true)})
	}
	return list
}

// costText returns the costs as a comment that all netfilter tools ignore.
func costText(list []stageCost) string {
	if list == nil {
		return ""
	}
	var words []string
	for _, c := range list {
		word := fmt.Sprintf("%.0f ns at %s", c.Drop, c.Stage)
		if c.Tracked != c.Drop {
			word += fmt.Sprintf(", %.0f behind conntrack", c.Tracked)
		}
		words = append(words, word)
	}
	return "# a packet that is dropped costs " + strings.Join(words, ", ") + "\n"
}
