// SPDX-License-Identifier: Apache-2.0

// This file adds up the counters of a policy in XDP and in netfilter. It also determines which counts continue when another policy replaces this one,
// or when rules move.

package manifest

import (
	"time"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Counts are all counts of a generation, in XDP and in netfilter.
type Counts struct {
	Manifest *Manifest
	Program  bool               // whether the generation has an XDP program
	slots    []image.Counter    // the counters of the program
	Ruleset  *netfilter.Ruleset // the ruleset in netfilter; nil if there is none
	Named    map[string]Count   // the counters of the ruleset
	Carried  Carried
	Read     time.Time // when the counters were read; if there is a program, when those in XDP were read
}

// Count is a number of packets and of their bytes.
type Count struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"octets"`
}

func (t Count) plus(o Count) Count { return Count{t.Packets + o.Packets, t.Bytes + o.Bytes} }

// minus returns t minus o. If o is larger, the result is 0.
func (t Count) minus(o Count) Count {
	return Count{t.Packets - min(t.Packets, o.Packets), t.Bytes - min(t.Bytes, o.Bytes)}
}

// ethernet is the length of the Ethernet header in bytes. XDP counts this header, and netfilter does not.
const ethernet = 14

// ReadSlots reads the counters in XDP up to the last slot that the manifest uses.
func (c *Counts) ReadSlots(state *datapath.State) error {
	counters, err := state.Counters()
	if err != nil || counters == nil {
		return err
	}
	defer counters.Close()
	slots := uint32(image.SlotRules)
	for _, u := range c.Manifest.UsedSlots() {
		slots = max(slots, u.Slot+1)
	}
	c.slots, err = datapath.ReadCounters(counters, min(slots, counters.MaxEntries()))
	return err
}

// Slot returns the count of a slot in XDP.
func (c *Counts) Slot(n uint32) Count {
	if n >= uint32(len(c.slots)) {
		return Count{}
	}
	return Count{c.slots[n].Packets, c.slots[n].Bytes}
}

// Rule returns the count of a rule. i is the index of the rule in the manifest.
func (c *Counts) Rule(i int, r Rule) Count {
	n := c.Carried.Rule(i)
	if r.Stage == plan.StageXDP {
		return n.plus(c.Slot(r.Slot)).plus(c.later(i, r))
	}
	if r.Temporary {
		return c.Named[c.Manifest.CounterOf(i)]
	}
	return n.plus(c.inRuleset(i))
}

// inRuleset returns the count of a rule in netfilter.
func (c *Counts) inRuleset(i int) Count {
	if c.Ruleset == nil || i >= len(c.Ruleset.Rules) {
		return Count{}
	}
	return c.Named[c.Ruleset.Rules[i]]
}

// later returns the count in netfilter of a rule that also runs in XDP. It counts packets that XDP has left to netfilter to decide.
func (c *Counts) later(i int, r Rule) Count {
	if r.Also == "" {
		return Count{}
	}
	return c.inRuleset(i)
}

// defaultLater is later for the default.
func (c *Counts) defaultLater() Count {
	if c.Manifest.At.Also == "" || c.Ruleset == nil {
		return Count{}
	}
	return c.Named[c.Ruleset.Default]
}

// Check returns the count of a check and the stage at which the check is made. `done` is false if no stage makes the check.
func (c *Counts) Check(check packet.Check) (n Count, at plan.Stage, done bool) {
	if c.Program {
		n = c.Slot(uint32(check))
		if c.Ruleset != nil { // add the packets that netfilter checks
			n = n.plus(c.Named[c.Ruleset.Checks[check.String()]])
		}
		return n, plan.StageXDP, true
	}
	if c.Ruleset != nil {
		if name, ok := c.Ruleset.Checks[check.String()]; ok {
			return c.Named[name].plus(c.Carried.Checks[check.String()]), c.Manifest.CheckStage(check), true
		}
	}
	return Count{}, "", false
}

// Checks returns the counts of all checks that are made.
func (c *Counts) Checks() (list []Count) {
	for check := range packet.NumChecks {
		if n, _, done := c.Check(check); done && c.Manifest.Checks.Has(check) {
			list = append(list, n)
		}
	}
	return list
}

// ByDefault returns the count of the default.
func (c *Counts) ByDefault() Count {
	n := c.Carried.Default
	switch {
	case c.Manifest.At.Stage == plan.StageXDP:
		return n.plus(c.Slot(image.SlotDefault)).plus(c.defaultLater())
	case c.Ruleset != nil:
		return n.plus(c.Named[c.Ruleset.Default])
	}
	return n
}
