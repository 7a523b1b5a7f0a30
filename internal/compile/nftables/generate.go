// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"errors"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Options are the parameters of a table that do not come from the plan.
type Options struct {
	Table   string                                     // the name of the table; "" is floodwall
	Devices []string                                   // the devices on which packets arrive from outside, at least one
	Counts  func(name string) (packets, octets uint64) // the initial value of the counter with this name in the table; nil: all begin at 0
	Protect []ir.Handshake                             // the parameters of Program.Protections that the loader found; nil: the usual ones
}

// Ruleset is a plan as a table of nftables.
type Ruleset struct {
	Table  string // its name, of family inet
	Script string // the table as input for `nft -f`

	// Chains are the names of the base chains. There are none if XDP makes all decisions.
	Chains []string

	// The names of the counters. A rule, check or default has no counter if it is absent or is decided elsewhere. A default that passes packets has
	// no counter where these packets are not counted.
	Rules   []string // of each rule of the program
	Default string
	Checks  map[packet.Check]string

	Proxies map[int]plan.ProxyCounters // the counters of SYNPROXY, by index in Program.Protections

	Sets map[int]Set // the policy's sets that the table contains, by their index in Program.Sets
	// The names of the objects or sets that hold limits, by index in Program.Limits, and the names of the sets in which rules count connections, by
	// index in Program.Rules. Each pair is either an object and "", or a set for each family.
	Limits, Crowds map[int][2]string

	Left []plan.LeftCheck // enabled checks that the table does not make, or makes only in part, in the order of their numbers
}

// Set has the names of the table's sets that together hold one set of the policy. "" means that the table has no such set. If the policy's set never
// changes, there are only sets for the families that occur in it.
type Set struct {
	V4, V6       string // addresses; for a set that never changes also ranges, unless these have sets of their own
	Nets4, Nets6 string // prefixes, which must not overlap each other; for a set that never changes: the ranges, if it has many addresses as well
	Dynamic      bool
	Live         bool // the script declares the sets without elements; the elements are replaced while the table is in use
}

// Empty reports whether there is nothing for netfilter to do.
func (n *Ruleset) Empty() bool { return len(n.Chains) == 0 }

// The priorities of chains, in the form of nft. Conntrack reassembles fragments at -400 and looks packets up at -200
// (include/uapi/linux/netfilter_ipv4.h). Rules that need only the packet come before both, because they apply to single packets. Exemptions from
// conntrack come between the two. They apply to whole datagrams, because later fragments have no ports.
const (
	priorityFirst          = "-450"
	priorityRaw            = "raw"    // -300
	priorityBehindRaw      = "-290"   // after all exemptions from conntrack at raw, and before conntrack at -200
	priorityFilter         = "filter" // 0
	priorityBeforeSynproxy = "2147483645"
	priorityLast           = "2147483647" // SYNPROXY's own hook is at this value less 1 (net/netfilter/nf_synproxy_core.c)

	defaultTable = "floodwall"
)

// Generate writes a plan as one table of family inet, for Linux 5.11 and nft 1.0.2 or later, which
//   - gives every packet that arrives on the devices the verdict of Program.Eval;
//   - counts the packet once, at the rule that decides it, whichever line of the rule matches; packets that the default passes are not counted where
//     that would cost too much (DefaultActs);
//   - never hides a passed packet from other tables: a verdict of pass ends only the chain that gives it.
//
// For TargetXDP the table has only the later stages and the exemptions from conntrack. It has no checks.
//
// In these cases nft decides otherwise than Program.Eval, apart from the checks in Ruleset.Left:
//   - The ingress hook does not see packets that are not IP or have two VLAN tags. Packets with two tags arrive at raw
//     through a VLAN device, if there is one.
//   - The kernel drops some packets at ingress, before any rule: packets whose IP header is invalid or gives a length
//     greater than the packet's, and IPv6 packets whose extension headers are truncated or are in the data of a later
//     fragment (include/net/netfilter/nf_tables_ipv4.h, nf_tables_ipv6.h).
//   - An IPv6 packet with an authentication header has protocol 51; nft does not look behind that header. It does look
//     behind more than six extension headers. Of two fragment headers, it reads the first.
//   - Tests of the payload of TCP need Linux 5.16; on earlier kernels nft rejects the table.
//   - A truncated L4 header still has the fields that are in the packet.
//   - The device may have merged segments of a stream (GRO). Merged segments have one length, and count as one packet,
//     also for limits. The same is true at filter of fragments that conntrack has reassembled.
//   - A limit by prefixes whose table is full lets all other prefixes pass. Space becomes free when a prefix in the
//     table has been idle until its bucket is full again, or has no more connections.
//   - Connections are counted from the time at which the table is loaded. TCP connections are counted until conntrack sees their end: TIME_WAIT or
//     CLOSE.
//   - At filter, a destination that NAT has translated counts as the host's own, because the original destination was.
//   - The check own-source is made at raw. If replies come before packet.SenderChecks, these checks are made at filter. So a rule at an earlier stage
//     may have counted a packet that fails these checks. No rule has answered it, because rules that reject stand behind these checks.
//
// From raw on, devices are matched by name. A device includes its VLAN devices if they are named after it, such as
// eth0.5. For a port of a bridge or a bond, these stages see the bridge or bond itself.
func Generate(pl *plan.Plan, o Options) (*Ruleset, error) {
	if len(o.Devices) == 0 {
		return nil, errors.New("nftables: no devices, to which the table's chains would belong")
	}
	n := newGenerator(pl, o)
	n.ingress()
	n.raw()
	n.untracked()
	n.forged()
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
	stateful strings.Builder      // the definitions of limits and of the sets that rules fill
	overs    map[overChain]string // the chains for rules with limits
	bodies   map[string]string    // the names of called chains, by the text of their lines
	chains   strings.Builder      // all finished chains
	writing  *strings.Builder     // the current chain
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

// count returns the statement that counts the packets of a rule.
func (n *generator) count(rule int) string {
	if n.out.Rules[rule] == "" {
		r := &n.plan.Program.Rules[rule]
		n.out.Rules[rule] = n.counter(counterKinds[r.Kind], r.Name)
	}
	return countText(n.out.Rules[rule])
}

// counterKinds are the prefixes of counter names. With a prefix, no name is a keyword of nft.
var counterKinds = [...]string{ir.RuleKindRule: "rule", ir.RuleKindService: "service", ir.RuleKindEssential: "essential"}

// counter adds a counter to the table and returns its name.
func (n *generator) counter(kind, name string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(name, kind+"-"), kind+":")
	counter := n.names.add(kind + "-" + name)
	n.counters = append(n.counters, counter)
	return counter
}

func countText(counter string) string { return fmt.Sprintf("counter name %q", counter) }
