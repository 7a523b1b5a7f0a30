package control

import (
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/addrs"
	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
	"github.com/floodwall/floodwall/internal/xdp"
)

// manifest is what a generation remembers of its policy: enough to report on it, to explain it, and to hand its
// counters and its dynamic sets to the next.
type manifest struct {
	File    string            `json:"file"`
	Applied time.Time         `json:"applied"`
	Target  compile.Target    `json:"target"`
	Choice  string            `json:"choice,omitempty"` // why it is this target, when nobody asked for one
	Devices []string          `json:"devices"`
	Default string            `json:"default"`
	At      compile.Placement `json:"at"` // where the default is
	Checks  packet.CheckSet   `json:"checks"`
	Form    compile.Form      `json:"form"`
	Key     uint64            `json:"key"`                // of questions
	Boot    string            `json:"boot,omitempty"`     // the copy of the policy that comes back after a reboot
	Parts   []*part           `json:"parts,omitempty"`    // in netfilter
	StandIn []*part           `json:"stand_in,omitempty"` // what takes the place of other kinds of parts during the trial
	Rules   []ruleEntry       `json:"rules"`
	Sets    []setEntry        `json:"sets"`

	Observed packet.CheckSet `json:"observed,omitempty"` // checks that only count
	Limits   []limitEntry    `json:"limits,omitempty"`   // in the order of ir.Program
}

type ruleEntry struct {
	Name        string        `json:"name"`
	Verdict     string        `json:"verdict"`
	Slot        uint32        `json:"slot"` // in the map of counters, when the stage is xdp
	Stage       compile.Stage `json:"stage"`
	Why         string        `json:"why"` // it is that stage
	Line        int           `json:"line,omitempty"`
	Merged      int           `json:"merged,omitempty"`
	Observe     bool          `json:"observe,omitempty"` // it only counts
	Fingerprint uint64        `json:"fingerprint"`
}

type setEntry struct {
	Name    string        `json:"name"`
	Entries int           `json:"entries"`
	Max     int           `json:"max"`
	Dynamic int           `json:"dynamic"` // its number among the dynamic sets in their order, -1 when it is not one
	Local   bool          `json:"local,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"`
}

// limitEntry is a limit of a rule.
type limitEntry struct {
	Rule string    `json:"rule"`
	Text string    `json:"text"` // as a policy has it
	Ban  *banEntry `json:"ban,omitempty"`
}

// banEntry says what becomes of prefixes that exceed a limit.
type banEntry struct {
	Set string        `json:"set"`
	For time.Duration `json:"for"`
	V4  int           `json:"v4"` // the lengths of the prefixes
	V6  int           `json:"v6"`
}

func newManifest(c *Compiled, pl *compile.Plan, plan slotPlan) *manifest {
	m := &manifest{
		File: c.Policy.File, Applied: time.Now().UTC().Truncate(time.Second), Target: pl.Target,
		Default: c.Program.Default.String(), At: pl.Default, Checks: c.Program.Checks, Observed: c.Program.Observed,
	}
	for i, r := range c.Program.Rules {
		m.Rules = append(m.Rules, ruleEntry{
			Name: r.Name, Verdict: r.Verdict.String(), Slot: plan.slots[i], Stage: pl.Rules[i].Stage, Why: pl.Rules[i].Why,
			Line: r.Line, Merged: r.Merged, Observe: r.Observe, Fingerprint: fingerprint(c.Program, r),
		})
	}
	for i := range c.Program.Guards {
		m.addGuard(c.Program, &c.Program.Guards[i], plan.guards[i])
	}
	for i := range c.Program.Limits {
		m.Limits = append(m.Limits, newLimitEntry(c.Program, i))
	}
	number := 0
	for _, s := range c.Program.Sets {
		e := setEntry{Name: s.Name, Entries: s.Entries, Max: s.Max, Dynamic: -1}
		if s.Dynamic != nil {
			e.Dynamic, e.Local, e.Timeout = number, s.Dynamic.Local, s.Dynamic.Timeout
			number++
		}
		if s.Name != "" {
			m.Sets = append(m.Sets, e)
		}
	}
	return m
}

// addGuard adds what a guard does about responses as a rule.
func (m *manifest) addGuard(p *ir.Program, g *ir.Guard, slot uint32) {
	r := responsesRule(g)
	if g.Out >= 0 {
		m.Rules = append(m.Rules, ruleEntry{
			Name: r.Name, Verdict: r.Verdict.String(), Slot: slot, Stage: compile.StageEgress,
			Why: "it is about what leaves", Line: r.Line, Observe: g.Observe, Fingerprint: fingerprint(p, r),
		})
	}
}

// responsesRule stands for what a guard does about responses, in counters and reports.
func responsesRule(g *ir.Guard) ir.Rule {
	return ir.Rule{Name: g.Service + ":responses", Kind: ir.RuleKindService, Line: g.Line, Verdict: ir.Drop}
}

func newLimitEntry(p *ir.Program, number int) limitEntry {
	l := &p.Limits[number]
	e := limitEntry{Rule: l.Rule, Text: p.LimitText(number)}
	if l.Ban != nil {
		e.Ban = &banEntry{Set: p.Sets[l.Ban.Set].Name, For: l.Ban.For, V4: l.Src.V4, V6: l.Src.V6}
	}
	return e
}

// fingerprint tells whether a rule stays the same from one policy to the next, and so keeps its counter. A rule with a
// name does when the name and the verdict stay: that is what the operator watches. One without must stay as it is.
func fingerprint(p *ir.Program, r ir.Rule) uint64 {
	h := fnv.New64a()
	if !r.Unnamed {
		fmt.Fprintln(h, r.Name, r.Verdict)
		return h.Sum64()
	}
	fmt.Fprintln(h, r.Verdict) // its name was made up of its position, which a rule above it changes
	for _, side := range [][]ir.AddrMatch{r.Src, r.Dst} {
		for _, m := range side {
			fmt.Fprintln(h, m.Not)
			for _, s := range m.Sets {
				fmt.Fprintln(h, p.Sets[s].Name)
				if p.Sets[s].Name == "" {
					hashSet(h, p.Sets[s].Static)
				}
			}
		}
	}
	fmt.Fprintln(h, r.Match, r.Names, r.Payload, r.Slip)
	for _, i := range r.Over {
		fmt.Fprintln(h, p.LimitText(i))
	}
	return h.Sum64()
}

// hashSet writes all of a set.
func hashSet(to io.Writer, s *addrs.Set) {
	var text []byte
	for p := range s.Prefixes() {
		text = append(p.AppendTo(text[:0]), ' ')
		to.Write(text)
	}
}

// reason names what a counter slot stands for.
func (m *manifest) reason(slot uint32) string {
	switch {
	case slot == xdp.SlotNotIP:
		return "not-ip"
	case slot == xdp.SlotDefault:
		return "default"
	case slot == xdp.SlotReplies:
		return "replies"
	case slot < uint32(packet.NumChecks):
		return packet.Check(slot).String()
	}
	for _, r := range m.Rules {
		if r.Slot == slot {
			return r.Name
		}
	}
	return fmt.Sprintf("slot %d", slot)
}

// answers reports whether a rule answers queries.
func (m *manifest) answers() bool {
	return slices.ContainsFunc(m.Rules, func(r ruleEntry) bool { return r.Verdict == ir.Truncate.String() && !r.Observe })
}

// first is the earliest stage at which the policy decides anything.
func (m *manifest) first() compile.Stage {
	pl := compile.Plan{Target: m.Target}
	return pl.First()
}

// set finds a set by its name.
func (m *manifest) set(name string) (setEntry, bool) {
	for _, s := range m.Sets {
		if s.Name == name {
			return s, true
		}
	}
	return setEntry{}, false
}
