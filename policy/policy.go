// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy/yamltree"
)

// Policy is a policy file that was read without a mistake. Everything in it is resolved: sets that rules name exist,
// numbers are in range, names are unique.
type Policy struct {
	File      string // the name as given; relative list files are relative to its directory
	Devices   []Device
	Default   Verdict
	Replies   bool // replies to outgoing packets pass; the default is true with Drop
	Checks    packet.CheckSet
	Named     packet.CheckSet // checks that are switched on by their name, not by a profile
	Observed  packet.CheckSet // checks that only count; none of them is in Checks
	Off       packet.CheckSet // checks that are switched off by their name
	Sets      []Set
	Names     []NameSet
	Rules     []Rule
	Services  []Service
	Never     []Addr    // addresses that are never banned; sets in it have fixed content
	Untracked []Traffic // traffic, apart from services, that is exempt from conntrack, by kind
	Exempt    []Exempt  // traffic that is exempt from conntrack, by match keys
	Placement Placement // the placement of rules that have none of their own; "" is auto
	XDP       *XDP      // when the program runs at XDP; nil is auto
	Essential []Essential
	Daemon    Daemon

	// DHCPServers are the DHCP servers that the policy's host uses, and its gateways. No key of the policy sets them.
	DHCPServers []netip.Addr

	// RepliesTracked means that conntrack identifies replies, because the kernel has no hook for outgoing packets. No key of the policy sets it.
	RepliesTracked bool

	Notes []Note // notes about parts that are allowed but may be unintended

	// BootClosed decides what a host does at boot if no saved policy can be loaded. If it is true, the host drops all traffic except essential
	// packets and the operator's access. If it is false, the host drops nothing. It is true by default if the policy's default is drop, because the
	// policy then means to pass no other traffic.
	BootClosed bool

	// DefaultPos is the position of the key default; zero if the policy has no such key.
	DefaultPos Pos
}

// DeviceNames returns the names of the devices.
func (p *Policy) DeviceNames() (names []string) {
	for _, d := range p.Devices {
		names = append(names, d.Name)
	}
	return names
}

// Note is a remark about a part of a policy that is allowed, but may have an effect that the author did not intend.
type Note struct {
	Pos Pos
	Msg string // one line, lower case, without the position
}

// Pos is a place in the policy file, both numbers from 1.
type Pos = yamltree.Pos

// Device is a network device on which packets arrive from outside.
type Device struct {
	Pos  Pos
	Name string
	XDP  *XDP // when the program runs at XDP; nil: as the policy says
}

// Verdict is the decision of a rule or of the default about a packet.
type Verdict uint8

// The verdicts that are supported.
const (
	Pass Verdict = iota
	Drop
	Reject   // drop, and send an error to the sender
	Truncate // answer a DNS query with an empty, truncated response
)

// String returns the policy's word for v.
func (v Verdict) String() string { return verdicts[v] }

var verdicts = []string{Pass: "pass", Drop: "drop", Reject: "reject", Truncate: "truncate"}

// Placement says where a rule runs: "auto", "earliest", or the earliest allowed stage: "xdp", "ingress", "raw" or
// "filter".
type Placement string

// Traffic is a kind of traffic with a name of its own.
type Traffic uint8

// The kinds.
const (
	Loopback   Traffic = iota // traffic of the host with itself
	Multicast                 // to a multicast address
	Broadcast                 // to a broadcast address of IPv4
	AllTraffic                // everything
)

// Exempt is traffic that conntrack does not track: packets that match, and the packets of the opposite direction. The match has only addresses,
// protocols, ports and the family.
type Exempt struct {
	Pos   Pos
	Match Match
}

// Set is a named set of addresses. Its content has one source: exactly one of Inline, File, Dynamic, Feed and Geo is set. For an empty list, Inline
// is empty, not nil.
type Set struct {
	Pos     Pos
	Name    string
	Inline  []AddrRange
	File    string   // a path, as written in the policy
	Dynamic *Dynamic // filled at run time
	Feed    *Feed    // fetched over HTTP
	Geo     *Geo     // of countries or autonomous systems
	Max     int      // declared capacity in entries; 0 when not declared
}

// Dynamic has the parameters of a set that is filled at run time.
type Dynamic struct {
	Timeout time.Duration // the default lifetime of an entry; 0: for ever
}

// AddrRange is an address, a prefix or a range: all addresses from First to Last, of one family.
type AddrRange struct{ First, Last netip.Addr }

// Rule is one rule: every key of Match must hold, and every key of Not must not.
type Rule struct {
	Pos   Pos
	Name  string
	Named bool // false: the policy gives no name, and Name is generated from the rule's number
	Match Match
	Not   Match
	Over  []Over // the rule matches packets that exceed any of these limits, tested in this order; nil: no limits
	Then  Verdict

	Connections *ConnLimit // the rule matches packets that open a connection above this limit; nil: no limit

	Observe bool   // only count matching packets: they continue with the next rule
	Slip    uint32 // with Truncate, n: answer one in n queries, and drop the others; 0: answer all
	Sample  uint32 // n: deliver one in n of its packets to user space; 0: none

	Placement Placement // "": the policy's Placement applies
}

// Over is a rate limit. Each prefix of From and To has its own rate.
type Over struct {
	Pos   Pos
	Rate  uint64        // packets or bits in the time Per
	Per   time.Duration // a second, minute, hour or day
	Bits  bool          // Rate and Burst are in bits
	Burst uint64        // packets or bits that may come at once; the default is filled in
	From  *PrefixLen    // each source prefix of this length has its own rate; nil: sources are not distinguished
	To    *PrefixLen    // likewise for destinations
	Max   int           // the largest number of prefixes at a time, 0: derived from the rate
	Ban   *Ban          // nil: offenders are not banned
}

// ConnLimit is a limit of simultaneous connections. Each prefix of sources or destinations, or each pair of them, has its own count.
type ConnLimit struct {
	Pos  Pos
	Most uint32     // connections, at least 1
	From *PrefixLen // each source prefix of this length has its own count; nil: sources are not distinguished
	To   *PrefixLen // likewise for destinations
	Max  int        // the largest number of prefixes at a time; 0: the default of the target
}

// PrefixLen is the length of a prefix in each family.
type PrefixLen struct{ V4, V6 int }

// Ban adds source prefixes that exceed a limit to a dynamic set. Unless Forgeable is set, only packets of this host's TCP connections can cause a
// ban, because these packets prove their source address.
type Ban struct {
	Set       string
	For       time.Duration
	Forgeable bool // any packet can cause a ban, though its source may be forged
}

// Service is a port that the host serves. If From is set, the port is closed to all sources that are not in From.
type Service struct {
	Pos   Pos
	Name  string
	Port  []Port
	From  []Addr
	Track Tracking
	Guard *Guard // nil: none
	Syn   *Syn   // nil: not protected
	UDP   *UDP   // nil: not protected
}

// UDP has the parameters of a service's protection from UDP floods, with defaults filled in.
type UDP struct {
	Pos     Pos
	Protect packet.Datagrams
	Start   Over   // a flood begins when the rate of packets from unknown clients exceeds this limit
	Stop    Over   // the flood ends when this rate is below this limit
	Known   Over   // limit for each known client; a client that exceeds it during a flood is no longer known
	Limits  []Over // limits by source prefixes for packets of unknown clients during a flood
	Total   *Over  // limit for all unknown clients together during a flood; nil: none
	Observe bool
}

// Syn has the parameters of a service's protection from floods of SYNs and ACKs, with defaults filled in.
type Syn struct {
	Pos    Pos
	Always bool    // answer every SYN with a cookie; else only while Start is exceeded
	Mode   SynMode // where the service runs
	Start  *Over   // rate of incomplete handshakes and of packets without a connection above which cookies begin; nil with Always
	Stop   *Over   // rate below which cookies end; nil with Always
	Limits []Over  // limits of SYN-ACKs by source prefixes: SYNs that exceed them are dropped
	Total  *Over   // limit of all SYN-ACKs together; nil: none

	Authenticated *Over        // limit of SYNs with TCP-AO or MD5 that pass to the kernel; nil: they are answered like any other SYN
	MSS           uint16       // the announced MSS; 0: the largest that the devices' MTU allows, or that of the backends
	WScale        int          // the announced window scale; -1: that of the host or of the backends
	Flows         int          // the largest number of connections that are remembered at a time
	Backends      []netip.Addr // with SynRouter, servers whose TCP options Floodwall queries; nil: the servers that it discovers
}

// SynMode says where a protected service runs.
type SynMode uint8

// The modes.
const (
	SynModeAuto SynMode = iota // on this host if it listens on the port, else behind it
	SynHost                    // on this host: XDP answers, and the kernel continues the connection as if it had answered itself
	SynRouter                  // behind this host, which forwards: XDP answers in front of the kernel's SYNPROXY
)

// Guard has the parameters of the guard of a DNS resolver, with defaults filled in.
type Guard struct {
	Pos       Pos
	Limits    []Over        // limits of queries from unverified clients; above them, every second query gets a truncated response, the others are dropped
	Total     *Over         // limit for the queries of all unverified clients together; nil: none
	Verified  []Over        // limits of queries from verified clients; queries above them are dropped
	Types     []uint32      // query types that only verified clients get answered over UDP
	Replies   *Over         // limit of all truncated responses to queries of Types and below flooded zones; queries above it are dropped
	Names     *Over         // limit of responses for nonexistent names, by zone; above it the zone counts as flooded; nil: no zone ever does
	Responses *Over         // limit of the resolver's responses by destination, in bits; responses above it are dropped
	Verify    time.Duration // how long a client stays verified after an answer over TCP; 0: TCP verifies no client
	Secret    string        // file of DNS cookie secrets, as written; "": cookies are ignored
	Observe   bool
}

// Tracking says how conntrack handles a service.
type Tracking uint8

// The ways to track a service.
const (
	TrackAsIs Tracking = iota // the host's own setting
	TrackNot                  // its packets never enter the table
	Track                     // its packets are tracked, and packets of no connection are dropped
)

// Match holds the keys of a rule. A key that is absent is nil. The values of one key are alternatives.
type Match struct {
	From, To    []Addr
	Proto       []uint8
	Port, SPort []Port
	Family      []uint32 // packet.FamilyIPv4, packet.FamilyIPv6
	Flags       []Flags
	ICMP        []ICMP
	Length      []Range
	TTL         []Range
	DSCP        []Range
	MSS         []Range  // packet.MSSMissing for "none"
	Fragment    []uint32 // packet.FragmentNone, FragmentFirst, FragmentLater
	VLAN        []Range  // packet.VLANNone for "none"
	Payload     *Payload
	DNS         *DNS
	State       []uint32 // packet.StateNew and so on
}

// Payload holds if all tests of At hold and, unless Contains is empty, the payload contains one of its patterns.
type Payload struct {
	Contains []Pattern
	At       []At
}

// Pattern is text anywhere in the first bytes of the payload.
type Pattern struct {
	Text   []byte // in lower case with NoCase
	NoCase bool   // ASCII letters match in either case
	Within uint16 // bytes of the payload
}

// At tests bytes at a fixed offset.
type At struct {
	Header bool // Offset counts from the L4 header, not from the payload
	Offset uint16
	Value  []byte // only bits of Mask are set
	Mask   []byte // of the same length
}

// DNS holds for messages in UDP, to port 53 unless the rule names ports of its own. If both keys are given, both must hold.
type DNS struct {
	Types []Range   // values of packet.DNS, including those that are not query types; nil: any query
	Names []DNSName // nil: any
}

// DNSName is a name, which matches itself and all names below it, or a set of such names.
type DNSName struct {
	Pos  Pos
	Set  string // name of the set, without the $
	Name string // lower case, without the dot at the end; "" is the root
}

// NameSet is a named set of domain names.
type NameSet struct {
	Pos   Pos
	Name  string
	Names []string
	File  string // a path, as written in the policy
}

// Addr is one alternative of from or to: a set, the host's own addresses, or addresses written in place.
type Addr struct {
	Pos   Pos
	Set   string // the name of the set, without the $
	Local bool
	AddrRange
}

// Range is a range of numbers, both ends included.
type Range struct{ First, Last uint32 }

// Port is a range of ports of one protocol or, with Proto 0, of TCP and UDP.
type Port struct {
	Proto       uint8
	First, Last uint16
}

// Flags holds if the TCP flags byte, masked by Mask, equals Value.
type Flags struct{ Value, Mask uint8 }

// ICMP is a message type of ICMP or ICMPv6 with a code. Code -1 means any code.
type ICMP struct {
	V6   bool
	Type uint8
	Code int
}
