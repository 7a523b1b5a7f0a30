// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Options are the parameters of Generate that are not in the plan.
type Options struct {
	Name    string   // the prefix of the names of chains (in capitals) and of sets; "" is floodwall
	Devices []string // the devices on which packets arrive from outside; none: all devices

	// Counts returns the earlier count of a reason, which becomes the initial value of its counters. If Counts is nil, counters begin at 0.
	Counts func(reason string) (packets, octets uint64)

	Protect []ir.Handshake // the parameters of Program.Protections that the loader found; nil: the usual ones
}

// Ruleset is a plan as input for ipset, iptables and ip6tables.
type Ruleset struct {
	Name string

	// IPSet is input for `ipset restore`. It creates and fills the sets that the rules use. `ipset save` lists these
	// sets in another order, with more options, and lists each port of a range separately.
	IPSet string

	// V4 and V6 are input for iptables-restore and ip6tables-restore, with the options --noflush and, if Options.Counts is set, --counters. They
	// declare and fill Floodwall's chains. The rules in built-in chains that lead to these chains are in Hooks.
	V4, V6 string
	Hooks  []Hook // rules in built-in chains that lead packets to Floodwall's chains, the same in both families

	// The comments of the lines that count each reason. The count of a reason is the sum over all lines with its comment, in both families and all
	// tables.
	Rules   []string // by index in Program.Rules
	Default string
	Checks  map[packet.Check]string    // the checks that are made
	Proxies map[int]plan.ProxyCounters // of SYNPROXY, by index in Program.Protections

	Sets  map[int]Set // the sets that the rules use as ipsets, by index in Program.Sets
	Left  []plan.LeftCheck
	Notes []string // packets that the kernel handles before these rules or apart from them

	families [2]*familyBuilder
}

// Hook is a rule in a built-in chain that leads to one of Floodwall's chains.
type Hook struct {
	Table  string // raw, filter or mangle
	Chain  string // PREROUTING, INPUT, FORWARD or OUTPUT
	Target string // one of Floodwall's chains
	Device string // the input device, in the syntax of -i: a name, or a prefix of names and +; "" is any
}

// String returns the text of the hook's rule, without the name of the built-in chain.
func (h Hook) String() string {
	if h.Device == "" {
		return "-j " + h.Target
	}
	return "-i " + h.Device + " -j " + h.Target
}

// Set has the names of the ipsets that hold one set of the program. ipset has a separate set for each family.
type Set struct {
	V4, V6  string        // names; "" where no rule uses the set
	Dynamic bool          // filled at run time
	Live    bool          // IPSet creates the set without entries; they are replaced while the rules are in use
	Timeout time.Duration // the default timeout of an entry of a dynamic set; 0: for ever
}

// Error is the reason why iptables cannot implement a policy.
type Error struct{ Cause, Remedy string }

func (e *Error) Error() string { return e.Cause }

// Hint returns the remedy.
func (e *Error) Hint() string { return e.Remedy }

// Generate writes a plan for iptables, in the form that a person would write, so that
//   - a packet that the raw and filter chains pass returns to the built-in chain, where rules of others still decide;
//     nothing is accepted;
//   - one line, that of its reason, counts each packet, except for packets that the raw stage leaves to the filter
//     stage;
//   - both families follow from the same rules.
//
// A check that iptables cannot make, or cannot make for all packets that fail it, is in Left, with the kernel's own
// handling of such packets.
func Generate(pl *plan.Plan, o Options) (*Ruleset, error) {
	if pl.Target != plan.TargetIptables {
		return nil, fmt.Errorf("plan for target %s: iptables was asked for", pl.Target)
	}
	if o.Name == "" {
		o.Name = "floodwall"
	}
	b := newBuilder(pl, o)
	for i := range match.BothFamilies {
		f := &familyBuilder{builder: b, family: match.BothFamilies[i], crowds: map[string]*chain{}}
		f.build()
		b.out.families[i] = f
	}
	b.out.V4, b.out.V6 = b.out.families[0].restore(nil), b.out.families[1].restore(nil)
	b.out.IPSet = b.ipset.String()
	b.out.Hooks, b.out.Left = b.hooks(), b.left()
	b.notes()
	return b.out, b.err
}

// builder is the state of Generate that both families share.
type builder struct {
	pl     *plan.Plan
	o      Options
	sets   []ir.Set // the sets of the program, and those of checks
	names  nameSet
	ipset  strings.Builder
	lists  map[string]int    // indices in sets of lists of checks
	ports  map[string]string // names of the sets of ports, by content
	made   map[string]bool   // ipsets that have been created
	bases  map[int]string    // names of sets, without the suffix of the family
	limits map[int]string    // names of hashlimit's tables, by index in Program.Limits
	begun  map[string]bool   // comments whose earlier count has been given to a line
	out    *Ruleset
	err    error
}

func newBuilder(pl *plan.Plan, o Options) *builder {
	p := pl.Program
	b := &builder{
		pl: pl, o: o,
		sets:   p.Sets[:len(p.Sets):len(p.Sets)],
		names:  nameSet{},
		lists:  map[string]int{},
		ports:  map[string]string{},
		made:   map[string]bool{},
		bases:  map[int]string{},
		limits: map[int]string{},
		begun:  map[string]bool{},
		out: &Ruleset{Name: o.Name, Default: "default", Checks: map[packet.Check]string{},
			Proxies: map[int]plan.ProxyCounters{}, Sets: map[int]Set{}},
	}
	for i := range p.Rules {
		b.out.Rules = append(b.out.Rules, shortName(p.Rules[i].Name, maxComment))
	}
	return b
}

// maxComment is the largest length of a comment without the suffixes that are added to it (XT_MAX_COMMENT_LEN of the
// kernel is 256).
const maxComment = 200

// hasRaw reports whether the raw chain exists. hasFilter reports the same of the filter chain.
func (b *builder) hasRaw() bool {
	return b.pl.CheckedAt(plan.StageRaw) || b.pl.Default.At(plan.StageRaw) || b.pl.Uses(plan.StageRaw)
}

func (b *builder) hasFilter() bool { return b.pl.Uses(plan.StageFilter) }

// hooks returns the rules in built-in chains that lead packets of the devices to Floodwall's chains. The rules that drop packets come before the
// exemptions from conntrack.
func (b *builder) hooks() (hooks []Hook) {
	var devices []string
	for _, d := range b.o.Devices {
		if devices = append(devices, d); len(d) <= plan.MaxBeforeVLAN { // VLAN devices that are named after the device
			devices = append(devices, d+".+")
		}
	}
	if len(devices) == 0 {
		devices = []string{""}
	}
	add := func(table, chain, target string) {
		for _, d := range devices {
			hooks = append(hooks, Hook{table, chain, target, d})
		}
	}
	if b.hasRaw() {
		add("raw", "PREROUTING", b.mainChain("RAW"))
	}
	if b.hasUntracked() {
		hooks = append(hooks, Hook{Table: "raw", Chain: "PREROUTING", Target: b.mainChain("UNTRACK-IN")},
			Hook{Table: "raw", Chain: "OUTPUT", Target: b.mainChain("UNTRACK-OUT")})
	}
	if b.pl.AsksState() { // after the exemptions, because a later CT target does not change an exempt packet
		add("raw", "PREROUTING", b.mainChain("FORGED"))
	}
	if b.hasFilter() {
		add("filter", "INPUT", b.mainChain("FILTER"))
		add("filter", "FORWARD", b.forwardChain())
	}
	if b.pl.Proxies() {
		hooks = append(hooks, Hook{Table: "mangle", Chain: "OUTPUT", Target: b.mainChain("PROXIED")})
	}
	return hooks
}

// notes adds notes about packets that the kernel handles before these rules, or outside of them.
func (b *builder) notes() {
	note := func(text string) { b.out.Notes = append(b.out.Notes, text) }
	asks := map[packet.Field]bool{}
	for i := range b.pl.Program.Rules {
		r := &b.pl.Program.Rules[i]
		for _, m := range r.Match {
			asks[m.Field] = asks[m.Field] || m.Field != packet.Fragment || r.Kind != ir.RuleKindEssential
		}
	}
	b.conditionNotes(note)
	b.translatedNotes(note)
	note("the kernel drops IPv6 packets from a multicast address, from or to ::1, and with hop-by-hop options that are " +
		"malformed or that it must not ignore, before iptables sees them")
	if asks[packet.Fragment] {
		note("where conntrack is in use, it puts fragments together before iptables sees them: then no packet is a fragment")
	}
	if asks[packet.Proto] || asks[packet.DPort] || asks[packet.SPort] || asks[packet.Flags] || asks[packet.ICMP] {
		note("a packet that ends within its L4 header or the IPv6 extension headers before it, and a later IPv6 fragment " +
			"of which an extension header is the first, are dropped by the first line that asks for what is behind, or do " +
			"not match it")
		note("what is behind an IPv6 authentication header (AH) is seen by ip6tables-legacy, and of ip6tables-nft by tests of " +
			"sets of ports and of headers")
	}
}
