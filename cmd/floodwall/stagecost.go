package main

import (
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/cost"
)

// stageCost is what a packet has cost on this host that is dropped at a stage, rules aside.
type stageCost struct {
	Stage   plan.Stage `json:"stage"`
	Drop    float64    `json:"drop_ns"`
	Tracked float64    `json:"tracked_drop_ns"` // where conntrack looks at packets
}

// stageCosts are those of a target's stages; none without a model.
func stageCosts(m *cost.Model, t plan.Target) (list []stageCost) {
	if m == nil {
		return nil
	}
	for _, s := range t.Stages() {
		list = append(list, stageCost{s, m.Drop(string(s), false), m.Drop(string(s), true)})
	}
	return list
}

// costText writes them as a comment that all tools of netfilter skip.
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
