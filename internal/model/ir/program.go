// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// Program is a policy after lowering: names are resolved, and services and defaults have become rules. Checks come first. Then the first rule that
// matches decides. If none matches, Default decides.
type Program struct {
	Checks  packet.CheckSet // the checks that drop packets
	Sets    []Set
	Rules   []Rule
	Default Verdict

	Names  []NameSet // used by rules that test the name of a DNS query
	Limits []Limit   // of rules with `over`
	Guards []Guard
	Floods []Flood // used by rules whose Asks is not NoFlood

	Protections []Protection

	Never *addrs.Set // addresses that are never banned; nil: none

	Observed packet.CheckSet // checks that only count; none of them is in Checks

	RepliesFirst bool // replies, which have StateEstablished or StateRelated, are not subject to packet.SenderChecks

	Untracked Untracked

	SampleTraffic  uint32 // XDP delivers one in SampleTraffic packets to user space, regardless of the verdict; 0: none
	SamplesAdapt   bool   // SampleTraffic is only the initial value: the daemon and the program adapt it to the packet rate
	SamplesLeaving bool   // outgoing packets are sampled as well as incoming ones

	Placement Placement // the placement of the default, and of rules that have none of their own; "" is PlaceAuto

	File string // the policy's file name, for messages; "" if there is none
}

// Place returns the beginning of a message about a line and column of the policy: "FILE:LINE:COL: ". Without a file name it is "line LINE: ". For
// parts that are not in the policy it is "".
func (p *Program) Place(line, col int) string {
	switch {
	case line == 0:
		return ""
	case p.File == "":
		return fmt.Sprintf("line %d: ", line)
	}
	return fmt.Sprintf("%s:%d:%d: ", p.File, line, col)
}

// Untracked is the traffic that is exempt from connection tracking. The exemption does not decide a packet. It sets the packet's state to
// StateUntracked.
type Untracked struct {
	Services  []UntrackedService
	Flows     []Rule // packets that match a rule, and packets of the opposite direction
	All       bool   // all traffic
	Loopback  bool   // all traffic of the host with itself
	Multicast bool   // all traffic to multicast addresses
	Broadcast bool   // all traffic to IPv4 broadcast addresses
}

// None reports whether all traffic is tracked.
func (u *Untracked) None() bool { return !u.Named() && len(u.Services) == 0 }

// Named reports whether any traffic other than services is exempt.
func (u *Untracked) Named() bool {
	return u.All || u.Loopback || u.Multicast || u.Broadcast || len(u.Flows) > 0
}

// Reversed returns the rule that matches the packets of the opposite direction.
func (r *Rule) Reversed() Rule {
	out := *r
	out.Src, out.Dst = r.Dst, r.Src
	out.Match = slices.Clone(r.Match)
	for i, m := range out.Match {
		if other, ok := map[packet.Field]packet.Field{packet.DPort: packet.SPort, packet.SPort: packet.DPort}[m.Field]; ok {
			out.Match[i].Field = other
		}
	}
	return out
}

// UntrackedService is a service that is exempt from connection tracking in both directions.
type UntrackedService struct {
	Name  string
	Ports []Range // values of packet.DPort
	Here  bool    // the service runs on this host; packets that are forwarded to and from such a port are tracked
}

// Verdict is the decision about a packet.
type Verdict uint8

// The verdicts.
const (
	Pass Verdict = iota
	Drop
	Reject    // drop, and send an error: a TCP reset, or an ICMP error that the port or the host is closed
	Truncate  // answer a DNS query with an empty, truncated response, so that the client asks again over TCP
	Challenge // answer a query or request to a game server with a challenge, which the client must send back
	Serve     // answer a query with the latest answer of the server
)

// String returns the word for v in the policy and in listings.
func (v Verdict) String() string {
	return [...]string{Pass: "pass", Drop: "drop", Reject: "reject", Truncate: "truncate", Challenge: "challenge", Serve: "serve"}[v]
}

// Answers reports whether the stage that decides a packet with this verdict also answers the packet.
func (v Verdict) Answers() bool { return v >= Truncate }

// Answering returns the words of the verdicts for which Answers is true.
func Answering() []string { return []string{Truncate.String(), Challenge.String(), Serve.String()} }

// Set is a set of addresses. Rules refer to it by its index in Program.Sets.
type Set struct {
	Name    string     // the name in the policy; "" for addresses written in a rule
	Static  *addrs.Set // the content, if it is constant while the program runs; with Live, the content at the time of lowering
	Live    bool       // Static is replaced while the program runs, so optimizations must not depend on it
	Dynamic *Dynamic   // the parameters of a set that is filled at run time; nil for other sets
	Entries int        // number of entries as the user counts them: each address, prefix or range is one
	Max     int        // capacity, counted in the same way
	Odd     string     // a note about skipped lines of the set's list; "" if there are none
}

// Fixed returns the content of a set that never changes while the program runs. It returns nil for other sets.
func (s *Set) Fixed() *addrs.Set {
	if s.Live {
		return nil
	}
	return s.Static
}

// Dynamic describes a set whose content changes while the program runs.
type Dynamic struct {
	Timeout time.Duration // the default lifetime of an entry; 0: for ever
	Local   bool          // this is the built-in set of the host's own addresses
}

// Rule is a match and a verdict. A rule matches a packet if all of Src, Dst, Match, Names and Payload hold and, if Over has limits, one of the limits
// is exceeded.
type Rule struct {
	Name    string
	Unnamed bool // the policy gives no name: Name was generated, and the rule needs no counter of its own
	Kind    RuleKind
	Line    int // in the policy file; 0 for built-in rules
	Col     int // likewise, the column
	Src     []AddrMatch
	Dst     []AddrMatch
	Match   []Match
	Names   []NameMatch
	Payload []PayloadMatch
	// Sources are prefixes, one of which must contain the source. nil allows any source. Unlike Src, they are tested last. So they add no cost to
	// packets that fail another test of the rule.
	Sources []netip.Prefix

	Over    []int // indices in Program.Limits, tested in this order until a limit is exceeded
	Verdict Verdict

	// Reply means that the rule matches StateEstablished and StateRelated, and that XDP recognizes packets of these states by the outgoing packets
	// that they answer, without conntrack.
	Reply bool

	// Spares is like Reply, but for a rule that does not match replies: it matches all states except StateEstablished and StateRelated.
	Spares bool

	// Asks is the rule's question about a flood. Flood is the index of the flood in Program.Floods.
	Asks  FloodQuestion
	Flood int

	// Unanswered restricts the rule to DNS queries for names below a flooded zone that have not been answered: see Guard.
	Unanswered bool

	// Connections is a limit of connections. The rule matches only if the limit is reached, and only packets of StateNew. nil: no limit.
	Connections *ConnLimit

	// Until is the time at which the rule ends, in nanoseconds of Unix time. From then on the rule matches no packet, even if no process removes it.
	// The kernel compares whole seconds. 0: no end.
	Until int64

	Observe bool   // only count matching packets: they continue with the next rule
	Slip    uint32 // with Truncate, n: answer one in n queries, and drop the others; 0 and 1 answer all (slip of BIND)
	Sample  uint32 // n: deliver one in n decided packets to user space; 0: none
	Protect int    // with Pass: the number of the protection for its packets, counted from 1; 0: none

	Placement Placement // "": the placement of the program applies

	// Merged is the number of the policy's rules that were merged into this rule. 0: it is not a merged rule.
	Merged int
}

// RuleKind is the origin of a rule.
type RuleKind uint8

// The kinds, in the order in which their rules are tested.
const (
	RuleKindRule      RuleKind = iota // written under rules
	RuleKindService                   // made from a service
	RuleKindEssential                 // traffic that `default: drop` must not drop: neighbor discovery, ICMP errors, DHCP replies
)

// AddrMatch holds if the address is in any of Sets or, with Not, in none of them.
type AddrMatch struct {
	Sets []int
	Not  bool
}

// Match holds if the packet's value of Field is in any of Values.
type Match struct {
	Field  packet.Field
	Values []Range // sorted, disjoint, not adjacent, all below Field.Size()
}

// Range is a range of field values, both ends included.
type Range = ranges.Range
