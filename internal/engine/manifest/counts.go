package manifest

import (
	"time"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Counts are what the places of a generation in the kernel have counted.
type Counts struct {
	Manifest *Manifest
	Program  bool               // there is one in XDP
	slots    []image.Counter    // its counters
	Ruleset  *netfilter.Ruleset // in netfilter, or nil
	Named    map[string]Count   // its counters
	Carried  Carried
	Read     time.Time // when they were read: those in XDP where there are some
}

// Count is a number of packets and of their bytes.
type Count struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"octets"`
}

func (t Count) plus(o Count) Count { return Count{t.Packets + o.Packets, t.Bytes + o.Bytes} }

// minus is 0 where the other has more.
func (t Count) minus(o Count) Count {
	return Count{t.Packets - min(t.Packets, o.Packets), t.Bytes - min(t.Bytes, o.Bytes)}
}

// ethernet is the header that XDP counts and netfilter does not, in bytes.
const ethernet = 14

// ReadSlots reads the counters in XDP, as far as the manifest uses them.
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

// Slot is what XDP has counted in a slot.
func (c *Counts) Slot(n uint32) Count {
	if n >= uint32(len(c.slots)) {
		return Count{}
	}
	return Count{c.slots[n].Packets, c.slots[n].Bytes}
}

// Rule is the count of a rule, by its index in the manifest.
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

// inRuleset is what netfilter counts of a rule.
func (c *Counts) inRuleset(i int) Count {
	if c.Ruleset == nil || i >= len(c.Ruleset.Rules) {
		return Count{}
	}
	return c.Named[c.Ruleset.Rules[i]]
}

// later is what netfilter counts of a rule in XDP, of what waited there.
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

// Check is the count of a check, and where it is done, if it is.
func (c *Counts) Check(check packet.Check) (n Count, at plan.Stage, done bool) {
	if c.Program {
		n = c.Slot(uint32(check))
		if c.Ruleset != nil { // frames that rules in netfilter do not see
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

// Checks are the counts of all checks that are done.
func (c *Counts) Checks() (list []Count) {
	for check := range packet.NumChecks {
		if n, _, done := c.Check(check); done && c.Manifest.Checks.Has(check) {
			list = append(list, n)
		}
	}
	return list
}

// ByDefault is the count of the default.
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
