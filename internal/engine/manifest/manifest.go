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
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Manifest is what a generation remembers of its policy: enough to report on it, to explain it, and to hand its
// counters and its dynamic sets to the next.
type Manifest struct {
	Format   int                  `json:"format,omitempty"` // manifestFormat; the first versions wrote none
	File     string               `json:"file"`
	Applied  time.Time            `json:"applied"`
	Target   plan.Target          `json:"target"`
	Mode     datapath.Mode        `json:"mode,omitempty"`   // of XDP, when somebody asked for one
	Choice   string               `json:"choice,omitempty"` // why it is this target, when nobody asked for one
	Devices  []string             `json:"devices"`
	Default  string               `json:"default"`
	At       plan.Assignment      `json:"at"` // where the default is
	Checks   packet.CheckSet      `json:"checks"`
	Form     xdpgen.Form          `json:"form"`
	Key      uint64               `json:"key"`                // of questions
	Tags     string               `json:"tags,omitempty"`     // why XDP has to see VLAN tags
	Boot     string               `json:"boot,omitempty"`     // the copy of the policy that comes back after a reboot
	Rulesets []*netfilter.Ruleset `json:"parts,omitempty"`    // in netfilter
	StandIn  []*netfilter.Ruleset `json:"stand_in,omitempty"` // what takes the place of other kinds of rulesets during the trial
	Rules    []Rule               `json:"rules"`
	Guards   []Guard              `json:"guards,omitempty"`
	Sets     []Set                `json:"sets"`

	Observed packet.CheckSet `json:"observed,omitempty"` // checks that only count
	// RepliesFirst is whether replies pass before packet.SenderChecks.
	RepliesFirst bool `json:"replies_first,omitempty"`

	Limits []Limit        `json:"limits,omitempty"` // in the order of ir.Program
	Never  []netip.Prefix `json:"never,omitempty"`  // who is not banned; only where a set has entries that the policy does not name
	// Operators are where the sessions come from that it was applied in, likewise.
	Operators []netip.Prefix `json:"operators,omitempty"`

	Live      []Live     `json:"live,omitempty"`       // sets whose content is exchanged
	LimitKeys *LimitKeys `json:"limit_keys,omitempty"` // of its limits, where there are live sets

	Placement string  `json:"placement,omitempty"` // the policy's word
	Source    string  `json:"source,omitempty"`    // names what it was compiled from, where that is kept
	Fixed     string  `json:"fixed,omitempty"`     // why its rules do not move while it runs
	Since     *Sample `json:"since,omitempty"`     // what was counted before its rules were where they are
	Moves     []Move  `json:"moves,omitempty"`     // the last ones

	Temporary        Temporaries        `json:"temporary,omitempty"`         // rules that stand before the policy's own
	TemporaryRuleset *netfilter.Ruleset `json:"temporary_ruleset,omitempty"` // what has them, when the target is not XDP

	Daemon *policy.Daemon `json:"daemon,omitempty"` // what the daemon does while it runs; nil: nothing of its own

	UDP         []UDPService `json:"udp,omitempty"` // that are protected from floods, in the order of their numbers
	Protections []Protection `json:"protections,omitempty"`
	Routed      []Routed     `json:"behind,omitempty"` // protected services behind this host
}

// manifestFormat changes when who knew only the format before would misread a manifest. A manifest without one is of the
// first versions, and of format 1.
const manifestFormat = 1

// Rule is a rule of the policy, and where it is counted.
type Rule struct {
	Name        string     `json:"name"`
	Verdict     string     `json:"verdict"`
	Slot        uint32     `json:"slot"` // in the map of counters, when the stage is xdp
	Stage       plan.Stage `json:"stage"`
	Also        plan.Stage `json:"also,omitempty"` // where it decides, and is counted, too: plan.Assignment
	Why         string     `json:"why"`            // it is that stage
	Line        int        `json:"line,omitempty"`
	Merged      int        `json:"merged,omitempty"`
	Observe     bool       `json:"observe,omitempty"`   // it only counts
	Protect     int        `json:"protect,omitempty"`   // the number of its protection, from 1 on
	Temporary   bool       `json:"temporary,omitempty"` // it is one of Manifest.Temporary, in their order, behind those of the policy
	Fingerprint uint64     `json:"fingerprint"`
}

// Set is a named set of the policy.
type Set struct {
	Name    string        `json:"name"`
	Entries int           `json:"entries"`
	Max     int           `json:"max"`
	Dynamic int           `json:"dynamic"` // its number among the dynamic sets in their order, -1 when it is not one
	Local   bool          `json:"local,omitempty"`
	Names   bool          `json:"names,omitempty"` // its entries are domain names
	Timeout time.Duration `json:"timeout,omitempty"`
}

// CheckStage is the stage at which a check is made.
func (m *Manifest) CheckStage(c packet.Check) plan.Stage {
	return m.Target.CheckStage(c, m.RepliesFirst)
}

// New is the manifest of a program with these stages and slots, as of now. file is the policy file.
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

// hashAddrs writes the names of sets, and what is in those that have none.
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

// hashSet writes all of a set.
func hashSet(to io.Writer, s *addrs.Set) {
	var text []byte
	for p := range s.Prefixes() {
		text = append(p.AppendTo(text[:0]), ' ')
		to.Write(text)
	}
}

// Reason names what a counter slot stands for.
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

// FirstStage is the earliest stage at which the policy decides anything.
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

// Line is that of a rule in the policy.
func (m *Manifest) Line(rule string) int {
	for _, r := range m.Rules {
		if r.Name == rule {
			return r.Line
		}
	}
	return 0
}
