// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// Carried has earlier counts of a generation that its present counters lack, because the earlier counters are gone. When a rule moves, it gets a new
// counter. A new counter in netfilter starts with the value of the old counter at the time when the new one was made. The old counter may count more
// packets after that time.
type Carried struct {
	Rules   []Count          `json:"rules,omitempty"` // in the order of the manifest's rules
	Checks  map[string]Count `json:"checks,omitempty"`
	Default Count            `json:"default"`
}

// Rule returns the count of a rule, by the index of the rule in the manifest.
func (c *Carried) Rule(i int) Count {
	if i >= len(c.Rules) {
		return Count{}
	}
	return c.Rules[i]
}

// IsZero reports whether all counts are 0.
func (c *Carried) IsZero() bool {
	nothing := func(t Count) bool { return t == Count{} }
	return nothing(c.Default) && !slices.ContainsFunc(c.Rules, func(t Count) bool { return !nothing(t) }) && len(c.Checks) == 0
}

// Read sets c to the counts that are stored with a generation. If no counts are stored, c stays unchanged.
func (c *Carried) Read(state *datapath.State, number int) error {
	text, err := state.Note(number, datapath.NoteCounted)
	if text == nil || err != nil {
		return err
	}
	if err := json.Unmarshal(text, c); err != nil {
		return fmt.Errorf("generation %d: %s: %w", number, datapath.NoteCounted, err)
	}
	return nil
}

// Write stores c with a generation.
func (c *Carried) Write(state *datapath.State, number int) error {
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("generation %d: %s: %w", number, datapath.NoteCounted, err)
	}
	return state.SetNote(number, datapath.NoteCounted, text)
}

// Seeds are the initial values of counters in netfilter. The key is the name of the counter in nftables, and the reason in iptables.
type Seeds map[string]Count

func (s Seeds) of(names ...string) Count {
	for _, name := range names {
		if n, ok := s[name]; ok {
			return n
		}
	}
	return Count{}
}

// InFrames converts a count of netfilter to a count of XDP, which includes the Ethernet headers.
func InFrames(n netfilter.Count) Count { return Count{n.Packets, n.Bytes + ethernet*n.Packets} }

// InPackets is the inverse of InFrames.
func (t Count) InPackets() netfilter.Count {
	return netfilter.Count{Packets: t.Packets, Bytes: t.Bytes - min(t.Bytes, ethernet*t.Packets)}
}

// Leaves returns the counts to add to the counters of the next generation, which has the same rules. The generation of c no longer counts. The result
// is the part of its counts with which the new counters did not start. New counters in netfilter started with the values in first. If a rule stays in
// XDP, its counter there is the same and needs no addition. If it moves to XDP, its counter there has only the packets of the time before, which was
// has.
func (c *Counts) Leaves(next *Manifest, was *Counts, first Seeds) Carried {
	own := func(slot uint32, from, to, also plan.Stage, names ...string) (n Count) {
		if to != plan.StageXDP || also != "" {
			n = first.of(names...)
		}
		switch {
		case to != plan.StageXDP:
			return n
		case from != plan.StageXDP:
			return n.plus(was.Slot(slot))
		}
		return n.plus(c.Slot(slot))
	}
	var f Carried
	for i, r := range next.Rules {
		from := c.Manifest.Rules[i]
		f.Rules = append(f.Rules, c.Rule(i, from).minus(own(r.Slot, from.Stage, r.Stage, r.Also, next.CounterOf(i), r.Name)))
	}
	f.Default = c.ByDefault().minus(own(image.SlotDefault, c.Manifest.At.Stage, next.At.Stage, next.At.Also, next.Ruleset().DefaultCounter()))
	if next.Ruleset() == nil || c.Ruleset == nil {
		return f
	}
	f.Checks = map[string]Count{}
	for check, name := range next.Ruleset().Checks { // checks never move between XDP and netfilter
		f.Checks[check] = c.Named[c.Ruleset.Checks[check]].plus(c.Carried.Checks[check]).minus(first.of(name))
	}
	return f
}

// GoesOn returns the counts to add to the counters of the next generation, which may have other rules. For a rule that both generations have in XDP,
// the result is the count that is added now. For a default that one of the two does not count, it is the whole count of the default. Counters in
// netfilter start with their whole count, so they need no addition.
func (c *Counts) GoesOn(next *Manifest) Carried {
	before, later := map[uint64]Count{}, map[uint64]Count{}
	for i, r := range c.Manifest.Rules {
		if r.Stage == plan.StageXDP {
			before[r.Fingerprint], later[r.Fingerprint] = c.Carried.Rule(i), c.later(i, r)
		}
	}
	var f Carried
	for _, r := range next.Rules {
		var n Count
		if r.Stage == plan.StageXDP {
			n = before[r.Fingerprint]
			if r.Also == "" {
				n = n.plus(later[r.Fingerprint])
			}
		}
		f.Rules = append(f.Rules, n)
	}
	switch {
	case next.Default != c.Manifest.Default:
	case next.Uncounted() || c.Manifest.Uncounted():
		f.Default = c.ByDefault()
	case next.At.Stage == plan.StageXDP && c.Manifest.At.Stage == plan.StageXDP:
		f.Default = c.Carried.Default
		if next.At.Also == "" {
			f.Default = f.Default.plus(c.defaultLater())
		}
	}
	return f
}

// Stay returns the counts in netfilter, by the names of the counters. It leaves out rules that the next generation lacks, and a default that it
// lacks.
func (c *Counts) Stay(next *Manifest) map[string]Count {
	counts, stays := maps.Clone(c.Named), map[string]Rule{}
	for _, r := range next.Rules {
		stays[r.Name] = r
	}
	for i, r := range c.Manifest.Rules[:min(len(c.Manifest.Rules), len(c.Ruleset.Rules))] {
		name := c.Ruleset.Rules[i]
		to, ok := stays[r.Name]
		_, counted := counts[name]
		switch {
		case !ok || to.Fingerprint != r.Fingerprint:
			delete(counts, name)
		case counted && r.Stage == plan.StageXDP && to.Stage == plan.StageXDP: // the other part of the count stays in the slot of XDP
			counts[name] = c.later(i, r)
		case counted:
			counts[name] = c.Rule(i, r)
		}
	}
	for check, name := range c.Ruleset.Checks {
		counts[name] = c.Named[name].plus(c.Carried.Checks[check])
	}
	if c.Manifest.Default != next.Default {
		delete(counts, c.Ruleset.Default)
	} else if _, ok := counts[c.Ruleset.Default]; ok {
		counts[c.Ruleset.Default] = c.ByDefault()
		if c.Manifest.At.Stage == plan.StageXDP && next.At.Stage == plan.StageXDP {
			counts[c.Ruleset.Default] = c.defaultLater()
		}
	}
	return counts
}
