// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/policy"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/plan"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/host/exposed"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Manifest is the data that a generation stores about its policy. With it other commands can report on the policy, explain it, and pass its counters
// and its dynamic sets on to the next generation.
type Manifest struct {
	Format   int                  `json:"format,omitempty"` // manifestFormat; the first versions stored no format
	File     string               `json:"file"`
	Applied  time.Time            `json:"applied"`
	Target   plan.Target          `json:"target"`
	Mode     datapath.Mode        `json:"mode,omitempty"`   // the mode of XDP that the user asked for
	Choice   string               `json:"choice,omitempty"` // why this target was chosen, if the user named none
	Devices  []string             `json:"devices"`
	Default  string               `json:"default"`
	At       plan.Assignment      `json:"at"` // where the default decides
	Checks   packet.CheckSet      `json:"checks"`
	Form     xdpgen.Form          `json:"form"`
	Key      uint64               `json:"key"`                // the key of questions
	Homes    map[string]Home      `json:"homes,omitempty"`    // of each device on target xdp, by its name in the policy; nil: an earlier version applied the policy
	XDP      *policy.XDP          `json:"xdp,omitempty"`      // of all devices, if an earlier version applied the policy; it is only read
	Tags     string               `json:"tags,omitempty"`     // why XDP must see VLAN tags
	Boot     string               `json:"boot,omitempty"`     // the name of the copy of the policy that is loaded after a reboot
	Origin   *Origin              `json:"origin,omitempty"`   // the text of the policy; nil: an earlier version applied the policy
	Rulesets []*netfilter.Ruleset `json:"parts,omitempty"`    // in netfilter
	StandIn  []*netfilter.Ruleset `json:"stand_in,omitempty"` // rulesets that replace those of other kinds during the trial
	Rules    []Rule               `json:"rules"`
	Guards   []Guard              `json:"guards,omitempty"`
	Sets     []Set                `json:"sets"`

	Observed packet.CheckSet `json:"observed,omitempty"` // checks that only count
	// RepliesFirst says whether replies pass before the checks packet.SenderChecks are made.
	RepliesFirst bool `json:"replies_first,omitempty"`

	Limits []Limit        `json:"limits,omitempty"` // in the order of ir.Program.Limits
	Never  []netip.Prefix `json:"never,omitempty"`  // prefixes that are never banned; stored only if a set has entries that the policy does not list
	// Operators are the client addresses of the sessions in which the policy was applied. They are stored under the same condition as Never.
	Operators []netip.Prefix `json:"operators,omitempty"`

	Live      []Live     `json:"live,omitempty"`       // sets whose content is replaced while the policy runs
	LimitKeys *LimitKeys `json:"limit_keys,omitempty"` // the keys of the tables of limits, if there are live sets

	Placement string  `json:"placement,omitempty"` // the placement that the policy asks for
	Source    string  `json:"source,omitempty"`    // the name of the stored source from which the policy was compiled, if it is stored
	Fixed     string  `json:"fixed,omitempty"`     // why the policy's rules do not move while it runs
	Since     *Sample `json:"since,omitempty"`     // the counts when the rules came to their present places
	Moves     []Move  `json:"moves,omitempty"`     // the most recent moves

	Temporary        Temporaries        `json:"temporary,omitempty"`         // rules that come before the policy's own
	TemporaryRuleset *netfilter.Ruleset `json:"temporary_ruleset,omitempty"` // the ruleset of the temporary rules, when the target is not XDP

	Openings []exposed.Opening `json:"openings"` // the openings of a policy that drops by default; else nil

	Daemon *policy.Daemon `json:"daemon,omitempty"` // the tasks of the daemon while the policy runs; nil: none

	UDP         []UDPService `json:"udp,omitempty"` // UDP services that are protected from floods, in the order of their numbers
	Protections []Protection `json:"protections,omitempty"`
	Routed      []Routed     `json:"behind,omitempty"` // protected services behind this host
}

// manifestFormat is the version of the manifest's format. It increases when a program that knows only the previous format would misread a manifest.
// The first versions stored no format: a manifest without one has format 1.
const manifestFormat = 1

// Rule is a rule of the policy, and the place of its counter.
type Rule struct {
	Name        string     `json:"name"`
	Verdict     string     `json:"verdict"`
	Slot        uint32     `json:"slot"` // the index in the map of counters, when the stage is xdp
	Stage       plan.Stage `json:"stage"`
	Also        plan.Stage `json:"also,omitempty"` // a second stage at which the rule decides and is counted: see plan.Assignment
	Why         string     `json:"why"`            // why the rule has this stage
	Line        int        `json:"line,omitempty"`
	Merged      int        `json:"merged,omitempty"`
	Observe     bool       `json:"observe,omitempty"`   // whether the rule only counts
	Protect     int        `json:"protect,omitempty"`   // the number of the rule's protection, from 1; 0: none
	Temporary   bool       `json:"temporary,omitempty"` // whether the rule is one of Manifest.Temporary, which come last, in their order
	Fingerprint uint64     `json:"fingerprint"`
}

// Set is a named set of the policy.
type Set struct {
	Name    string        `json:"name"`
	Entries int           `json:"entries"`
	Max     int           `json:"max"`
	Dynamic int           `json:"dynamic"` // the index of the set among the dynamic sets; -1: not dynamic
	Local   bool          `json:"local,omitempty"`
	Names   bool          `json:"names,omitempty"` // the entries are domain names
	Timeout time.Duration `json:"timeout,omitempty"`
}

// CheckStage returns the stage at which a check is made.
func (m *Manifest) CheckStage(c packet.Check) plan.Stage {
	return m.Target.CheckStage(c, m.RepliesFirst)
}

// New returns the manifest of a program with the given stages and slots. Its Applied is the present time. file is the policy file.
func New(file string, p *ir.Program, pl *plan.Plan, numbers SlotPlan) *Manifest {
	m := &Manifest{
		Format: manifestFormat, File: file, Applied: time.Now().UTC().Truncate(time.Second), Target: pl.Target,
		Default: p.Default.String(), At: pl.Default, Checks: p.Checks, Observed: p.Observed, RepliesFirst: p.RepliesFirst,
	}
	for i, r := range p.Rules {
		m.Rules = append(m.Rules, Rule{
			Name: r.Name, Verdict: r.Verdict.String(), Slot: numbers.Slots[i], Stage: pl.Rules[i].Stage, Also: pl.Rules[i].Also, Why: pl.Rules[i].Why,
			Line: r.Line, Merged: r.Merged, Observe: r.Observe, Protect: r.Protect, Fingerprint: fingerprint(p, r),
		})
	}
	if pl.Target == plan.TargetXDP {
		for i, g := range p.Guards {
			m.Guards = append(m.Guards, Guard{g.Service, numbers.Guards[i], g.Line, g.Out >= 0, g.Observe})
		}
	}
	for i := range p.Floods {
		m.UDP = append(m.UDP, UDPService{p.Floods[i].Service, p.Floods[i].Protocol.String()})
	}
	m.limits(p)
	number := 0
	for _, s := range p.Sets {
		e := Set{Name: s.Name, Entries: s.Entries, Max: s.Max, Dynamic: -1}
		if s.Dynamic != nil {
			e.Dynamic, e.Local, e.Timeout = number, s.Dynamic.Local, s.Dynamic.Timeout
			number++
		}
		if s.Name != "" {
			m.Sets = append(m.Sets, e)
		}
	}
	for _, s := range p.Names {
		if s.Name != "" {
			m.Sets = append(m.Sets, Set{Name: s.Name, Entries: len(s.Names), Max: len(s.Names), Dynamic: -1, Names: true})
		}
	}
	return m
}

// fingerprint returns a number that identifies a rule across policies. While it stays the same, the rule keeps its counter. The fingerprint of a
// named rule depends only on the name and the verdict, because the operator watches these. The fingerprint of an unnamed rule depends on the whole
// rule.
func fingerprint(p *ir.Program, r ir.Rule) uint64 {
	h := fnv.New64a()
	if !r.Unnamed {
		fmt.Fprintln(h, r.Name, r.Verdict)
		return h.Sum64()
	}
	fmt.Fprintln(h, r.Verdict) // the name was made from the rule's position, which changes when a rule above it is added
	for _, side := range [][]ir.AddrMatch{r.Src, r.Dst} {
		for _, m := range side {
			hashAddrs(h, p, m)
		}
	}
	for _, m := range r.Names {
		hashNames(h, p, m)
	}
	fmt.Fprintln(h, r.Match, r.Payload, r.Slip)
	for _, i := range r.Over {
		fmt.Fprintln(h, p.LimitText(i))
	}
	if r.Connections != nil {
		fmt.Fprintln(h, r.Connections)
	}
	return h.Sum64()
}

// hashAddrs writes the names of the sets of a match. For a set without a name it writes the content.
func hashAddrs(to io.Writer, p *ir.Program, m ir.AddrMatch) {
	fmt.Fprintln(to, m.Not)
	for _, s := range m.Sets {
		fmt.Fprintln(to, p.Sets[s].Name)
		if p.Sets[s].Name == "" {
			hashSet(to, p.Sets[s].Static)
		}
	}
}

// hashNames is hashAddrs for domain names.
func hashNames(to io.Writer, p *ir.Program, m ir.NameMatch) {
	fmt.Fprintln(to, m.Not)
	for _, s := range m.Sets {
		fmt.Fprintln(to, p.Names[s].Name)
		if p.Names[s].Name == "" {
			fmt.Fprintln(to, p.Names[s].Names)
		}
	}
}

// hashSet writes all prefixes of a set.
func hashSet(to io.Writer, s *addrs.Set) {
	var text []byte
	for p := range s.Prefixes() {
		text = append(p.AppendTo(text[:0]), ' ')
		to.Write(text)
	}
}

// Reason returns the name of the reason that a counter slot counts.
func (m *Manifest) Reason(slot uint32) string {
	switch {
	case slot == image.SlotNotIP:
		return "not-ip"
	case slot == image.SlotDefault:
		return "default"
	case slot == image.SlotWaiting:
		return "waiting"
	case slot == image.SlotReplies:
		return "replies"
	case slot < uint32(packet.NumChecks):
		return packet.Check(slot).String()
	}
	for _, r := range m.Rules {
		if r.Slot == slot {
			return r.Name
		}
	}
	for _, g := range m.Guards {
		if g.Slot == slot {
			return g.Name()
		}
	}
	for _, s := range m.Protections {
		if o := slices.Index(s.Slots[:], slot); o >= 0 {
			return s.Name(ir.Outcome(o))
		}
	}
	return fmt.Sprintf("slot %d", slot)
}

// FirstStage returns the earliest stage at which the policy decides about packets.
func (m *Manifest) FirstStage() plan.Stage {
	pl := plan.Plan{Target: m.Target}
	return pl.First()
}

// Set finds a set by its name.
func (m *Manifest) Set(name string) (Set, bool) {
	for _, s := range m.Sets {
		if s.Name == name {
			return s, true
		}
	}
	return Set{}, false
}

// Read reads the manifest of a generation. It returns a datapath.FormatError when a later version wrote it.
func Read(number int, text []byte) (*Manifest, error) {
	m := &Manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("manifest of generation %d: %w", number, err)
	}
	if m.Format > manifestFormat {
		return nil, &datapath.FormatError{Generation: number, Map: "manifest", Theirs: m.Format, Ours: manifestFormat}
	}
	return m, nil
}

// Line returns the line of a rule in the policy file, 0 when there is no such rule.
func (m *Manifest) Line(rule string) int {
	for _, r := range m.Rules {
		if r.Name == rule {
			return r.Line
		}
	}
	return 0
}
