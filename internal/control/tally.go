package control

import (
	"context"
	"errors"

	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/netfilter"
	"github.com/floodwall/floodwall/internal/packet"
	"github.com/floodwall/floodwall/internal/plan"
	"github.com/floodwall/floodwall/internal/xdp"
)

// tallies are what the places of a generation in the kernel have counted.
type tallies struct {
	manifest *manifest
	program  bool             // there is one in XDP
	slots    []xdp.Counter    // its counters
	ruleset  *ruleset         // in netfilter, or nil
	named    map[string]tally // its counters
	carried  carried
}

// tally is a number of packets and of their octets.
type tally struct {
	Packets uint64 `json:"packets"`
	Octets  uint64 `json:"octets"`
}

func (t tally) plus(o tally) tally { return tally{t.Packets + o.Packets, t.Octets + o.Octets} }

// minus is 0 where the other has more.
func (t tally) minus(o tally) tally {
	return tally{t.Packets - min(t.Packets, o.Packets), t.Octets - min(t.Octets, o.Octets)}
}

// ethernet is the header that XDP counts and netfilter does not, in octets.
const ethernet = 14

// tallies reads all counters of a generation.
func (l *live) tallies(ctx context.Context, g *generation) (*tallies, error) {
	c := &tallies{manifest: g.manifest, program: g.program != nil, ruleset: g.manifest.ruleset(), named: map[string]tally{}}
	if err := c.carried.read(l.state, g.number); err != nil {
		return nil, err
	}
	if c.program && g.foreign() == nil {
		if err := c.readSlots(l.state); err != nil {
			return nil, err
		}
	}
	if c.ruleset == nil {
		return c, nil
	}
	t, err := l.tool(ctx, c.ruleset.Kind)
	if err != nil {
		return nil, err
	}
	counts, err := t.Counters(ctx, c.ruleset.Name)
	for name, n := range counts {
		c.named[name] = inFrames(n)
	}
	return c, unlessAbsent(err)
}

// unlessAbsent is no error when somebody has removed what was asked for: that is for Status to say, and for the next
// apply to mend.
func unlessAbsent(err error) error {
	var state *netfilter.StateError
	if errors.As(err, &state) && state.State == netfilter.Absent {
		return nil
	}
	return err
}

func (c *tallies) readSlots(state *datapath.State) error {
	counters, err := state.Counters()
	if err != nil || counters == nil {
		return err
	}
	defer counters.Close()
	slots := uint32(xdp.SlotRules)
	for _, u := range c.manifest.usedSlots() {
		slots = max(slots, u.slot+1)
	}
	c.slots, err = datapath.ReadCounters(counters, min(slots, counters.MaxEntries()))
	return err
}

// slot is what XDP has counted in a slot.
func (c *tallies) slot(n uint32) tally {
	if n >= uint32(len(c.slots)) {
		return tally{}
	}
	return tally{c.slots[n].Packets, c.slots[n].Octets}
}

// rule is the count of a rule, by its index in the manifest.
func (c *tallies) rule(i int, r ruleEntry) tally {
	n := c.carried.rule(i)
	switch {
	case r.Stage == plan.StageXDP:
		return n.plus(c.slot(r.Slot))
	case c.ruleset == nil || i >= len(c.ruleset.Rules):
		return n
	}
	return n.plus(c.named[c.ruleset.Rules[i]])
}

// check is the count of a check, and where it is done, if it is.
func (c *tallies) check(check packet.Check) (n tally, at plan.Stage, done bool) {
	if c.program {
		n = c.slot(uint32(check))
		if c.ruleset != nil { // frames that rules in netfilter do not see
			n = n.plus(c.named[c.ruleset.Checks[check.String()]])
		}
		return n, plan.StageXDP, true
	}
	if c.ruleset != nil {
		if name, ok := c.ruleset.Checks[check.String()]; ok {
			return c.named[name].plus(c.carried.Checks[check.String()]), c.manifest.Target.CheckStage(check), true
		}
	}
	return tally{}, "", false
}

// checks are the counts of all checks that are done.
func (c *tallies) checks() (list []tally) {
	for check := range packet.NumChecks {
		if n, _, done := c.check(check); done && c.manifest.Checks.Has(check) {
			list = append(list, n)
		}
	}
	return list
}

// byDefault is the count of the default.
func (c *tallies) byDefault() tally {
	n := c.carried.Default
	switch {
	case c.manifest.At.Stage == plan.StageXDP:
		return n.plus(c.slot(xdp.SlotDefault))
	case c.ruleset != nil:
		return n.plus(c.named[c.ruleset.Default])
	}
	return n
}
