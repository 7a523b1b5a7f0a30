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

// Options are what Generate is told beside the plan.
type Options struct {
	Name    string   // of chains, in capitals, and of sets; "" is floodwall
	Devices []string // where packets come in from outside; none is everywhere

	// Counts says what a reason has counted before, for counters that go on. nil begins at 0.
	Counts func(reason string) (packets, octets uint64)

	Protect []ir.Handshake // what was found out about Program.Protections; nil is the usual
}

// Ruleset is what a plan becomes for ipset, iptables and ip6tables.
type Ruleset struct {
	Name string

	// IPSet is input of `ipset restore`: it creates and fills the sets that the rules use. `ipset save` lists them in
	// another order, with more options, and each port of a range by itself.
	IPSet string

	// V4 and V6 are input of iptables-restore and ip6tables-restore, with --noflush, and with --counters when Counts was
	// given. They declare and fill chains of our own, which nothing leads to yet.
	V4, V6 string
	Hooks  []Hook // how packets reach our chains, the same in both families

	// The comments of the lines that count a reason. A reason's count is the sum over all lines with its comment, in both
	// families and all tables.
	Rules   []string // by index in Program.Rules
	Default string
	Checks  map[packet.Check]string    // those that are done
	Proxies map[int]plan.ProxyCounters // of SYNPROXY, by index in Program.Protections

	Sets  map[int]Set // by index in Program.Sets; those that the rules use and that are ipsets
	Left  []plan.LeftCheck
	Notes []string // what the kernel does with some packets before or beside these rules

	families [2]*familyBuilder
}

// Hook is a rule of a built-in chain that leads to one of ours.
type Hook struct {
	Table  string // raw, filter or mangle
	Chain  string // PREROUTING, INPUT, FORWARD or OUTPUT
	Target string // our chain
	Device string // where the packet came in, as -i takes it: a name, or the beginning of names and +; "" is anywhere
}

// String is the hook's rule, as follows the chain's name in a line of iptables.
func (h Hook) String() string {
	if h.Device == "" {
		return "-j " + h.Target
	}
	return "-i " + h.Device + " -j " + h.Target
}

// Set is a set of the program in ipset, which has a set for each family.
type Set struct {
	V4, V6  string        // names; "" where no rule uses the set
	Dynamic bool          // filled at run time
	Live    bool          // the input makes it without entries, which are exchanged while the rules decide
	Timeout time.Duration // of an entry that is added to a dynamic set without one; 0 is for ever
}

// Error says that iptables cannot do what a policy asks for.
type Error struct{ Cause, Remedy string }

func (e *Error) Error() string { return e.Cause }

// Hint is the remedy.
func (e *Error) Hint() string { return e.Remedy }

// Generate writes a plan for iptables, in the form in which a person would, so that
//   - a packet of a device that the raw and filter chains let by returns to the built-in chain, where other people's
//     rules still decide; nothing is accepted;
//   - each packet is counted by one line, that of its reason, unless a check or rule passed on to the filter stage;
//   - both families follow from the same rules.
//
// A check that iptables cannot do, or not for all packets that fail it, is in Left, with what the kernel does about it.
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
	sets   []ir.Set // of the program, and those of checks
	names  nameSet
	ipset  strings.Builder
	lists  map[string]int    // indices in sets of lists of checks
	ports  map[string]string // names of the sets of ports, by content
	made   map[string]bool   // ipsets that are created
	bases  map[int]string    // names of sets without the family's ending
	limits map[int]string    // names of hashlimit's tables, by index in Program.Limits
	begun  map[string]bool   // comments whose count goes on in a line already
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

// maxComment is the longest comment, less what is added to it here (XT_MAX_COMMENT_LEN of the kernel is 256).
const maxComment = 200

// hasRaw and hasFilter report which of our two chains there are.
func (b *builder) hasRaw() bool {
	return b.pl.CheckedAt(plan.StageRaw) || b.pl.Default.At(plan.StageRaw) || b.pl.Uses(plan.StageRaw)
}

func (b *builder) hasFilter() bool { return b.pl.Uses(plan.StageFilter) }

// hooks lead packets of the devices to the chains of rules, those that are dropped before the others are exempted from
// tracking.
func (b *builder) hooks() (hooks []Hook) {
	var devices []string
	for _, d := range b.o.Devices {
		if devices = append(devices, d); len(d) <= plan.MaxBeforeVLAN { // and its VLAN devices that are named like it
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
	if b.hasFilter() {
		add("filter", "INPUT", b.mainChain("FILTER"))
		add("filter", "FORWARD", b.forwardChain())
	}
	if b.pl.Proxies() {
		hooks = append(hooks, Hook{Table: "mangle", Chain: "OUTPUT", Target: b.mainChain("PROXIED")})
	}
	return hooks
}

// notes say where the kernel decides before or beside the rules.
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
