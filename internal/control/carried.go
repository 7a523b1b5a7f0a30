package control

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/netfilter"
	"github.com/floodwall/floodwall/internal/plan"
	"github.com/floodwall/floodwall/internal/xdp"
)

// carried is what was counted for a generation in places that are gone, beside what its own counters show: a rule that
// moves has another counter, and one of netfilter begins with what the old one had when it was made, not when it ended.
type carried struct {
	Rules   []tally          `json:"rules,omitempty"` // in the manifest's order
	Checks  map[string]tally `json:"checks,omitempty"`
	Default tally            `json:"default"`
}

func (c *carried) rule(i int) tally {
	if i >= len(c.Rules) {
		return tally{}
	}
	return c.Rules[i]
}

// isZero reports whether there is nothing to add.
func (c *carried) isZero() bool {
	nothing := func(t tally) bool { return t == tally{} }
	return nothing(c.Default) && !slices.ContainsFunc(c.Rules, func(t tally) bool { return !nothing(t) }) && len(c.Checks) == 0
}

func (c *carried) read(state *datapath.State, number int) error {
	text, err := state.Note(number, datapath.NoteCounted)
	if text == nil || err != nil {
		return err
	}
	if err := json.Unmarshal(text, c); err != nil {
		return fmt.Errorf("generation %d: %s: %w", number, datapath.NoteCounted, err)
	}
	return nil
}

func (c *carried) write(state *datapath.State, number int) error {
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("generation %d: %s: %w", number, datapath.NoteCounted, err)
	}
	return state.SetNote(number, datapath.NoteCounted, text)
}

// seeds are what counters in netfilter were told to begin with: in nftables by their name, in iptables by the reason.
type seeds map[string]tally

func (s seeds) of(names ...string) tally {
	for _, name := range names {
		if n, ok := s[name]; ok {
			return n
		}
	}
	return tally{}
}

// counterOf is the counter in netfilter of a rule, by its index; "" where it has none.
func (m *manifest) counterOf(rule int) string {
	if p := m.ruleset(); p != nil && rule < len(p.Rules) {
		return p.Rules[rule]
	}
	return ""
}

func (p *ruleset) defaultCounter() string {
	if p == nil {
		return ""
	}
	return p.Default
}

// inFrames is a count of netfilter, with the headers that XDP counts.
func inFrames(n netfilter.Count) tally { return tally{n.Packets, n.Octets + ethernet*n.Packets} }

// inPackets is the opposite of inFrames.
func (t tally) inPackets() netfilter.Count {
	return netfilter.Count{Packets: t.Packets, Octets: t.Octets - min(t.Octets, ethernet*t.Packets)}
}

// leaves is what is to be added to the counters of a generation with the same rules that takes the place of this one,
// which counts no more: all that is not in the counters that the new one began with. Those in netfilter began with what
// first says; those in XDP with what is in them now if both generations count there, and else with what was, before the
// new one ran.
func (c *tallies) leaves(next *manifest, was *tallies, first seeds) carried {
	own := func(slot uint32, from, to plan.Stage, names ...string) tally {
		switch {
		case to != plan.StageXDP:
			return first.of(names...)
		case from != plan.StageXDP:
			return was.slot(slot)
		}
		return c.slot(slot)
	}
	var f carried
	for i, r := range next.Rules {
		from := c.manifest.Rules[i]
		f.Rules = append(f.Rules, c.rule(i, from).minus(own(r.Slot, from.Stage, r.Stage, next.counterOf(i), r.Name)))
	}
	f.Default = c.byDefault().minus(own(xdp.SlotDefault, c.manifest.At.Stage, next.At.Stage, next.ruleset().defaultCounter()))
	if next.ruleset() == nil || c.ruleset == nil {
		return f
	}
	f.Checks = map[string]tally{}
	for check, name := range next.ruleset().Checks { // which never move between XDP and netfilter
		f.Checks[check] = c.named[c.ruleset.Checks[check]].plus(c.carried.Checks[check]).minus(first.of(name))
	}
	return f
}

// uncounted reports whether a generation does not count what its default decides.
func (m *manifest) uncounted() bool {
	return m.At.Stage != plan.StageXDP && m.ruleset().defaultCounter() == ""
}

// goesOn is what is to be added to the counters of the next generation, which may have other rules: of those that both
// have in XDP, what is added now, and of a default that one of them does not count, all. Counters in netfilter begin with
// all of it.
func (c *tallies) goesOn(next *manifest) carried {
	before := map[uint64]tally{}
	for i, r := range c.manifest.Rules {
		if r.Stage == plan.StageXDP {
			before[r.Fingerprint] = c.carried.rule(i)
		}
	}
	var f carried
	for _, r := range next.Rules {
		var n tally
		if r.Stage == plan.StageXDP {
			n = before[r.Fingerprint]
		}
		f.Rules = append(f.Rules, n)
	}
	switch {
	case next.Default != c.manifest.Default:
	case next.uncounted() || c.manifest.uncounted():
		f.Default = c.byDefault()
	case next.At.Stage == plan.StageXDP && c.manifest.At.Stage == plan.StageXDP:
		f.Default = c.carried.Default
	}
	return f
}

// stay are the counts in netfilter, by the names of their counters there, without those of rules and of a default that the
// next generation has not.
func (c *tallies) stay(next *manifest) map[string]tally {
	counts, stays := maps.Clone(c.named), map[string]uint64{}
	for _, r := range next.Rules {
		stays[r.Name] = r.Fingerprint
	}
	for i, r := range c.manifest.Rules[:min(len(c.manifest.Rules), len(c.ruleset.Rules))] {
		name := c.ruleset.Rules[i]
		if f, ok := stays[r.Name]; !ok || f != r.Fingerprint {
			delete(counts, name)
		} else if _, ok := counts[name]; ok {
			counts[name] = c.rule(i, r)
		}
	}
	for check, name := range c.ruleset.Checks {
		counts[name] = c.named[name].plus(c.carried.Checks[check])
	}
	if c.manifest.Default != next.Default {
		delete(counts, c.ruleset.Default)
	} else if _, ok := counts[c.ruleset.Default]; ok {
		counts[c.ruleset.Default] = c.byDefault()
	}
	return counts
}
