package nftables

import (
	"errors"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Options are what a plan does not say about a table.
type Options struct {
	Table   string                                     // its name; "" is floodwall
	Devices []string                                   // where packets come in from outside, at least one
	Counts  func(name string) (packets, octets uint64) // what a counter, by its name in the table, starts with; nil is 0
	Protect []ir.Handshake                             // what was found out about Program.Protections; nil is the usual
}

// Ruleset is a plan as a table of nftables.
type Ruleset struct {
	Table  string // its name, of family inet
	Script string // the table as `nft -f` reads it

	// Chains are those that hang in hooks of the kernel. There are none when XDP does all.
	Chains []string

	// The names of the counters. A rule, check or default that is decided elsewhere, or that is not there, has none; nor has a
	// default that passes, where it is not counted.
	Rules   []string // of each rule of the program
	Default string
	Checks  map[packet.Check]string

	Proxies map[int]plan.ProxyCounters // the counters of SYNPROXY, by index in Program.Protections

	Sets map[int]Set // the policy's sets that the table has, by their index in Program.Sets
	// The names of what limits are kept in, by index in Program.Limits, and of the sets in which rules count connections, by index in
	// Program.Rules: an object and "", or a set for each family.
	Limits, Crowds map[int][2]string

	Left []plan.LeftCheck // checks that are enabled and that the table does not make, or not whole, by their number
}

// Set names the sets of a table that together are one set of the policy. "" is one that is not there: a set that
// never changes has only the families that occur.
type Set struct {
	V4, V6       string // addresses; of a set that never changes also ranges, unless these have sets of their own
	Nets4, Nets6 string // prefixes, which must not overlap each other; of a set that never changes ranges beside many addresses
	Dynamic      bool
	Live         bool // the script declares it without elements, which are exchanged while the table decides
}

// Empty reports whether there is nothing for netfilter to do.
func (n *Ruleset) Empty() bool { return len(n.Chains) == 0 }

// The priorities of chains, as nft writes them. Conntrack puts fragments together at -400 and looks packets up at -200
// (include/uapi/linux/netfilter_ipv4.h). Rules that the packet alone decides stand before both, as they mean single
// packets; what is exempted from conntrack is a whole datagram, as later fragments have no ports, and so stands between.
const (
	priorityFirst          = "-450"
	priorityRaw            = "raw"    // -300
	priorityFilter         = "filter" // 0
	priorityBeforeSynproxy = "2147483645"
	priorityLast           = "2147483647" // SYNPROXY's own hook is one before (net/netfilter/nf_synproxy_core.c)

	defaultTable = "floodwall"
)

// Generate writes a plan as one table of family inet, for Linux 5.11 and nft 1.0.2 or later, which
//   - gives every packet that comes in by the devices the verdict of Program.Eval;
//   - counts it once, at the rule that decides, whichever of the rule's lines matches, but for what the default passes where
//     that would cost more than it tells (defaultActs);
//   - never keeps a packet from the tables of others: a verdict of pass ends only the chain that gives it.
//
// For TargetXDP it holds what XDP leaves: the later stages and the exemptions from conntrack, no checks.
//
// Some packets nft sees otherwise than Program.Eval, besides what Nft.Left says of checks:
//   - What is not IP, or has two VLAN tags, does not come to the hook at ingress. The latter come from raw on, by a VLAN
//     device, if there is one.
//   - Packets whose IP header cannot be read or counts more than there is, and IPv6 packets whose extension headers break
//     off or are in the data of a later fragment, are dropped by the kernel at ingress, before any rule
//     (include/net/netfilter/nf_tables_ipv4.h, nf_tables_ipv6.h).
//   - An IPv6 packet with an authentication header has protocol 51; what follows that header is not looked at. More than
//     six extension headers are, and of two fragment headers the first counts.
//   - The payload of TCP is found from Linux 5.16 on; before, nft refuses the table.
//   - An L4 header that is cut short still has the fields that are there.
//   - The device has merged segments of a stream (GRO) before: they have one length, and count as one packet, also
//     to limits. So do fragments at filter, where conntrack has put them together.
//   - A limit by prefixes that holds as many as it can lets all others pass, until one of those has been idle for as
//     long as its burst takes to be forgotten, or has no connection any more.
//   - Connections are counted from when the table is there, and those of TCP until conntrack sees their end: in TIME_WAIT or CLOSE.
//   - At filter a destination that NAT has translated there counts as the host's own, which it was when it came in.
//   - The check own-source is made at raw, and where replies come before packet.SenderChecks, these are made at filter: a rule at an
//     earlier stage may have counted such a packet before. None has answered it: rules that reject stand behind these checks.
//
// From raw on the device is known by its name: a device includes its VLAN devices that are called like it, as eth0.5. The
// ports of a bridge or a bond are not seen there, but the bridge or bond itself.
func Generate(pl *plan.Plan, o Options) (*Ruleset, error) {
	if len(o.Devices) == 0 {
		return nil, errors.New("nftables: no devices, to which the table's chains would belong")
	}
	n := newGenerator(pl, o)
	n.ingress()
	n.raw()
	n.untracked()
	n.filter()
	n.proxied()
	n.out.Script = n.script()
	return &n.out, nil
}

// generator is the state of Generate.
type generator struct {
	plan     *plan.Plan
	options  Options
	out      Ruleset
	names    names
	counters []string // in the order of their first use
	sets     setTable
	stateful strings.Builder      // the definitions of both
	overs    map[overChain]string // chains of rules with limits
	bodies   map[string]string    // names of called chains by their lines
	chains   strings.Builder      // all that are written
	writing  *strings.Builder     // the one that is being written
}

func newGenerator(pl *plan.Plan, o Options) *generator {
	if o.Table == "" {
		o.Table = defaultTable
	}
	n := &generator{plan: pl, options: o, names: names{},
		overs: map[overChain]string{}, bodies: map[string]string{}, writing: &strings.Builder{}, out: Ruleset{
			Table:   o.Table,
			Rules:   make([]string, len(pl.Program.Rules)),
			Checks:  map[packet.Check]string{},
			Proxies: map[int]plan.ProxyCounters{},
			Sets:    map[int]Set{},
			Limits:  map[int][2]string{},
			Crowds:  map[int][2]string{},
		}}
	n.sets = setTable{program: pl.Program, names: n.names, named: n.out.Sets, contents: map[int]setContent{}}
	return n
}

// count writes the statement that counts at a rule.
func (n *generator) count(rule int) string {
	if n.out.Rules[rule] == "" {
		r := &n.plan.Program.Rules[rule]
		n.out.Rules[rule] = n.counter(counterKinds[r.Kind], r.Name)
	}
	return countText(n.out.Rules[rule])
}

// counterKinds are the beginnings of the names of counters. With them no name is a word of nft's own language.
var counterKinds = [...]string{ir.RuleKindRule: "rule", ir.RuleKindService: "service", ir.RuleKindEssential: "essential"}

// counter adds a counter to the table and returns its name.
func (n *generator) counter(kind, name string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(name, kind+"-"), kind+":")
	counter := n.names.add(kind + "-" + name)
	n.counters = append(n.counters, counter)
	return counter
}

func countText(counter string) string { return fmt.Sprintf("counter name %q", counter) }
