package control

import (
	"context"
	"errors"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/netfilter"
	"github.com/floodwall/floodwall/internal/packet"
	"github.com/floodwall/floodwall/internal/xdp"
)

// tallies are what the places of a generation in the kernel have counted.
type tallies struct {
	manifest *manifest
	program  bool             // there is one in XDP
	slots    []xdp.Counter    // its counters
	part     *part            // in netfilter, or nil
	named    map[string]tally // its counters
}

// tally is a number of packets and of their octets.
type tally struct{ packets, octets uint64 }

// ethernet is the header that XDP counts and netfilter does not, in octets.
const ethernet = 14

// tallies reads all counters of a generation.
func (l *live) tallies(ctx context.Context, g *generation) (*tallies, error) {
	c := &tallies{manifest: g.manifest, program: g.program != nil, part: g.manifest.part(), named: map[string]tally{}}
	if c.program {
		if err := c.readSlots(l.state); err != nil {
			return nil, err
		}
	}
	if c.part == nil {
		return c, nil
	}
	t, err := l.tool(ctx, c.part.Kind)
	if err != nil {
		return nil, err
	}
	counts, err := t.Counters(ctx, c.part.Name)
	for name, n := range counts {
		c.named[name] = tally{n.Packets, n.Octets + ethernet*n.Packets}
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
	switch {
	case r.Stage == compile.StageXDP:
		return c.slot(r.Slot)
	case c.part == nil || i >= len(c.part.Rules):
		return tally{}
	}
	return c.named[c.part.Rules[i]]
}

// check is the count of a check, and where it is done, if it is.
func (c *tallies) check(check packet.Check) (n tally, at compile.Stage, done bool) {
	if c.program {
		return c.slot(uint32(check)), compile.StageXDP, true
	}
	if c.part != nil {
		if name, ok := c.part.Checks[check.String()]; ok {
			return c.named[name], compile.CheckStage(c.manifest.Target, check), true
		}
	}
	return tally{}, "", false
}

// byDefault is the count of the default.
func (c *tallies) byDefault() tally {
	switch {
	case c.manifest.At.Stage == compile.StageXDP:
		return c.slot(xdp.SlotDefault)
	case c.part != nil:
		return c.named[c.part.Default]
	}
	return tally{}
}
