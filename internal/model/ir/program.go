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

// Program is a policy, lowered: all names resolved, services and defaults spelled out as rules. Checks come first, then
// the first rule that matches decides, then Default.
type Program struct {
	Checks  packet.CheckSet // the checks that drop
	Sets    []Set
	Rules   []Rule
	Default Verdict

	Names  []NameSet // of rules that ask for the name of a DNS query
	Limits []Limit   // of rules with `over`
	Guards []Guard
	Floods []Flood // what rules with Asks ask about

	Protections []Protection

	Never *addrs.Set // who is never banned; nil: nobody

	Observed packet.CheckSet // checks that only count; none of them is in Checks

	RepliesFirst bool // packets that answer one that left, of StateEstablished or StateRelated, do not fail packet.SenderChecks

	Untracked Untracked

	SampleTraffic  uint32 // hand one in so many of all packets to user space, in XDP, whatever decides them; 0 is none
	SamplesAdapt   bool   // that number is only the first: the daemon and the program adapt it to the rate
	SamplesLeaving bool   // packets that leave are sampled likewise

	Placement Placement // of rules that have none of their own, and of the default; "" is PlaceAuto

	File string // the policy's name, for messages; "" when there is none
}

// Place begins a message about what is at a line and column of the policy: "FILE:LINE:COL: ", without a file "line LINE: ", and "" for what
// is not in the policy.
func (p *Program) Place(line, col int) string {
	switch {
	case line == 0:
		return ""
	case p.File == "":
		return fmt.Sprintf("line %d: ", line)
	}
	return fmt.Sprintf("%s:%d:%d: ", p.File, line, col)
}

// Untracked is what connection tracking is kept away from. It gives no packet a verdict, but StateUntracked.
type Untracked struct {
	Services  []UntrackedService
	Flows     []Rule // of each the packets that it matches, and those that go the other way
	All       bool   // everything
	Loopback  bool   // all traffic of the host with itself
	Multicast bool   // all to a multicast address
	Broadcast bool   // all to a broadcast address of IPv4
}

// None reports whether everything is tracked.
func (u *Untracked) None() bool { return !u.Named() && len(u.Services) == 0 }

// Named reports whether more than services is not tracked.
func (u *Untracked) Named() bool {
	return u.All || u.Loopback || u.Multicast || u.Broadcast || len(u.Flows) > 0
}

// Reversed is a rule for the packets that go the other way.
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

// UntrackedService is a service whose packets are not tracked, in both directions.
type UntrackedService struct {
	Name  string
	Ports []Range // values of packet.DPort
	Here  bool    // this host serves it: packets that it forwards to and from such a port are tracked
}

// Verdict is what happens to a packet.
type Verdict uint8

// The verdicts.
const (
	Pass Verdict = iota
	Drop
	Reject    // drop, and tell the sender: a TCP reset, or an ICMP error that the port or the host is closed
	Truncate  // answer a DNS query with an empty, truncated response, so that the client asks again over TCP
	Challenge // answer a query or request at a game server with a challenge, which the client is to repeat
	Serve     // answer it with the latest answer of the server
)

// String is the word of the policy, and of listings.
func (v Verdict) String() string {
	return [...]string{Pass: "pass", Drop: "drop", Reject: "reject", Truncate: "truncate", Challenge: "challenge", Serve: "serve"}[v]
}

// Answers reports whether packets are answered from where they are decided.
func (v Verdict) Answers() bool { return v >= Truncate }

// Answering lists the words of verdicts of which Answers holds.
func Answering() []string { return []string{Truncate.String(), Challenge.String(), Serve.String()} }

// Set is a set of addresses that rules refer to by its index in Program.Sets.
type Set struct {
	Name    string     // of the policy; "" for addresses written in a rule
	Static  *addrs.Set // the content, when it is fixed for the program's life, or as it was when the program was lowered
	Live    bool       // Static is exchanged while the program runs, so nothing may be concluded from it
	Dynamic *Dynamic   // or how it may be filled at run time
	Entries int        // entries as the user counts them: one a line, an address, a prefix or a range
	Max     int        // capacity in such entries
	Odd     string     // which lines of its list were left out, if any
}

// Fixed is what the set holds as long as the program runs, nil when that changes.
func (s *Set) Fixed() *addrs.Set {
	if s.Live {
		return nil
	}
	return s.Static
}

// Dynamic describes a set whose content changes while the program runs.
type Dynamic struct {
	Timeout time.Duration // how long an entry holds if not said otherwise; 0 for ever
	Local   bool          // the built-in set of the host's own addresses
}

// Rule is a match and a verdict. All of Src, Dst, Match, Names and Payload must hold and, when there are limits in Over,
// one of them must be exceeded.
type Rule struct {
	Name    string
	Unnamed bool // Name was made up: nobody asked for this rule's own counter
	Kind    RuleKind
	Line    int // in the policy file; 0 for built-in rules
	Col     int // likewise
	Src     []AddrMatch
	Dst     []AddrMatch
	Match   []Match
	Names   []NameMatch
	Payload []PayloadMatch
	// Sources, unless it is nil, are prefixes of which one must have the source. Unlike Src they are asked last, and cost
	// packets that the rest of the rule does not match nothing.
	Sources []netip.Prefix

	Over    []int // limits, by their index in Program.Limits, asked in this order until one is exceeded
	Verdict Verdict

	// Reply, beside a match of StateEstablished and StateRelated, has XDP tell these by what has left, and not by conntrack.
	Reply bool

	// Asks is what the rule asks about a flood, by its index in Program.Floods.
	Asks  FloodQuestion
	Flood int

	// Unanswered has the rule match DNS queries only whose name is below a flooded zone and was not answered: see Guard.
	Unanswered bool

	// Connections, unless it is nil, must be as many as there may be. Such a rule matches packets of StateNew only.
	Connections *ConnLimit

	// Until is when the rule ends, in nanoseconds of Unix time: from then on it matches nothing, without a process that removes it. The
	// kernel compares whole seconds. 0 is no end.
	Until int64

	Observe bool   // count what matches, and go on as if it did not
	Slip    uint32 // with Truncate: answer one in so many, and drop the others; 0 and 1 answer all (BIND's slip)
	Sample  uint32 // hand one in so many of the packets it decides to user space; 0 is none
	Protect int    // with Pass: the number of the protection that its packets go through, from 1 on; 0 is none

	Placement Placement // "": that of the program

	// Merged counts the policy's rules that this one stands for, when more than one.
	Merged int
}

// RuleKind says where a rule comes from.
type RuleKind uint8

// The kinds, in the order in which they are asked.
const (
	RuleKindRule      RuleKind = iota // written under rules
	RuleKindService                   // made from a service
	RuleKindEssential                 // what `default: drop` must not cut: neighbor discovery, ICMP errors, DHCP replies
)

// AddrMatch holds when the address is in any of Sets, or with Not when it is in none.
type AddrMatch struct {
	Sets []int
	Not  bool
}

// Match holds when the packet's value of Field is in any of Values.
type Match struct {
	Field  packet.Field
	Values []Range // sorted, disjoint, not adjacent, all below Field.Size()
}

// Range is a range of field values, both ends included.
type Range = ranges.Range
