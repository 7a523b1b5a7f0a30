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
	File      string // as it was named; relative list files are relative to its directory
	Devices   []Device
	Default   Verdict
	Replies   bool // what answers a packet that left passes; beside Drop unless the policy says otherwise
	Checks    packet.CheckSet
	Named     packet.CheckSet // those of Checks that are switched on by their name, not by a profile
	Observed  packet.CheckSet // checks that only count; none of them is in Checks
	Off       packet.CheckSet // checks that are switched off by their name
	Sets      []Set
	Names     []NameSet
	Rules     []Rule
	Services  []Service
	Never     []Addr    // who is not banned, whatever exceeds a limit; of sets those whose content is fixed
	Untracked []Traffic // what conntrack is kept away from, besides services: kinds of traffic,
	Exempt    []Exempt  // and what matches keys
	Placement Placement // of rules that have none of their own; "" is auto
	Essential []Essential
	Daemon    Daemon

	// DHCPServers are those that the host knows where the policy runs, gateways among them. No key sets them.
	DHCPServers []netip.Addr

	// RepliesTracked has conntrack tell replies, where the kernel has no hook for what leaves. No key sets it.
	RepliesTracked bool

	Notes []Note // what is allowed but may not be meant

	// BootClosed is what a host does at boot when none of the policies that were saved can be loaded: drop all but what is
	// essential and the operator's way in. Else it drops nothing. A policy that does not say is closed when its default is
	// drop: what it does not name was not to be reached.
	BootClosed bool

	// DefaultPos is where default stands; zero when the policy leaves it out.
	DefaultPos Pos
}

// DeviceNames are the names of the devices.
func (p *Policy) DeviceNames() (names []string) {
	for _, d := range p.Devices {
		names = append(names, d.Name)
	}
	return names
}

// Note is something in a policy that is no mistake but that its author may want to know.
type Note struct {
	Pos Pos
	Msg string // one line, lower case, without the position
}

// Pos is a place in the policy file, both numbers from 1.
type Pos = yamltree.Pos

// Device is a network device from which packets come in from outside.
type Device struct {
	Pos  Pos
	Name string
}

// Verdict is what a rule or the default does with a packet.
type Verdict uint8

// The verdicts that are supported.
const (
	Pass Verdict = iota
	Drop
	Reject   // drop, and tell the sender
	Truncate // answer a DNS query with an empty, truncated response
)

// String is the policy's word for v.
func (v Verdict) String() string { return verdicts[v] }

var verdicts = []string{Pass: "pass", Drop: "drop", Reject: "reject", Truncate: "truncate"}

// Placement is where a rule shall run: "auto", "earliest", or the stage before which it must not: "xdp", "ingress", "raw"
// or "filter".
type Placement string

// Traffic is a kind of traffic that is named as a whole.
type Traffic uint8

// The kinds.
const (
	Loopback   Traffic = iota // of the host with itself
	Multicast                 // to a multicast address
	Broadcast                 // to a broadcast address of IPv4
	AllTraffic                // everything
)

// Exempt is traffic that is not tracked: the packets of a match, and those that go the other way. Of the match's keys it has addresses,
// protocols, ports and the family only.
type Exempt struct {
	Pos   Pos
	Match Match
}

// Set is a named set of addresses. Exactly one of Inline, File, Dynamic, Feed and Geo tells where its content comes from; Inline
// of an empty list is empty, not nil.
type Set struct {
	Pos     Pos
	Name    string
	Inline  []AddrRange
	File    string   // as written
	Dynamic *Dynamic // filled at run time
	Feed    *Feed    // fetched over HTTP
	Geo     *Geo     // of countries or autonomous systems
	Max     int      // declared capacity in entries; 0 when not declared
}

// Dynamic says how a set that is filled at run time behaves.
type Dynamic struct {
	Timeout time.Duration // how long an entry holds when `block` says nothing; 0 for ever
}

// AddrRange is an address, a prefix or a range: all addresses from First to Last, of one family.
type AddrRange struct{ First, Last netip.Addr }

// Rule is one rule: every key of Match must hold, and every key of Not must not.
type Rule struct {
	Pos   Pos
	Name  string
	Named bool // false: the policy gives no name, and Name was made from the rule's number
	Match Match
	Not   Match
	Over  []Over // the rule matches what exceeds any of these, asked in this order; nil: it does not ask
	Then  Verdict

	Connections *ConnLimit // the rule matches what begins a connection beyond these; nil: it does not ask

	Observe bool   // count what matches, and go on as if it did not
	Slip    uint32 // with Truncate: answer one in so many, and drop the others; 0 answers all
	Sample  uint32 // hand one in so many of its packets to user space; 0 is none

	Placement Placement // "": the policy's
}

// Over is a rate, and by what it is counted.
type Over struct {
	Pos   Pos
	Rate  uint64        // packets or bits in the time Per
	Per   time.Duration // a second, minute, hour or day
	Bits  bool          // Rate and Burst are in bits
	Burst uint64        // packets or bits that may come at once; the default is worked in
	From  *PrefixLen    // one rate for each prefix of sources, nil: not by source
	To    *PrefixLen    // of destinations
	Max   int           // prefixes to remember at a time, 0: as many as the rate calls for
	Ban   *Ban          // nil: offenders are not banned
}

// ConnLimit is how many connections there may be at a time, and by what they are counted: by sources, by destinations, or by pairs.
type ConnLimit struct {
	Pos  Pos
	Most uint32     // connections, at least 1
	From *PrefixLen // one count for each prefix of sources, nil: not by source
	To   *PrefixLen // of destinations
	Max  int        // prefixes to remember at a time, 0: as many as is usual
}

// PrefixLen is the length of a prefix in each family.
type PrefixLen struct{ V4, V6 int }

// Ban puts offending prefixes of sources into a dynamic set: by packets of TCP connections that this host has, which prove
// the address, or by any packet.
type Ban struct {
	Set       string
	For       time.Duration
	Forgeable bool // by any packet, whose source anybody can write
}

// Service is a port that the host serves. From, when set, closes it to all others.
type Service struct {
	Pos   Pos
	Name  string
	Port  []Port
	From  []Addr
	Track Tracking
	Guard *Guard // nil: none
	Syn   *Syn   // nil: not protected
	UDP   *UDP   // likewise
}

// UDP is how a service is protected from floods over UDP, its defaults worked in.
type UDP struct {
	Pos     Pos
	Protect packet.Datagrams
	Start   Over   // of packets of clients that are not known, beyond which a flood begins
	Stop    Over   // below which it ends again
	Known   Over   // by source: a known client that exceeds it during a flood is known no more
	Limits  []Over // by prefixes of sources, of packets of all others during a flood
	Total   *Over  // likewise, of all others together; nil: none
	Observe bool
}

// Syn is how a service is protected from floods of SYNs and ACKs, its defaults worked in.
type Syn struct {
	Pos    Pos
	Always bool    // answer every SYN with a cookie; else only while Start is exceeded
	Mode   SynMode // where the service lives
	Start  *Over   // of SYNs that are not completed, and of packets of no connection, beyond which cookies begin; nil with Always
	Stop   *Over   // below which they end again; nil with Always
	Limits []Over  // of SYN-ACKs, by prefixes of sources: SYNs that exceed them are dropped
	Total  *Over   // of SYN-ACKs, in all; nil: none

	Authenticated *Over        // of SYNs with TCP-AO or MD5 that the kernel answers; nil: they are answered as any other
	MSS           uint16       // that is announced; 0: as the devices' MTU allows, or as the backends announce
	WScale        int          // likewise; -1: as the host would, or as the backends do
	Flows         int          // connections to remember at a time
	Backends      []netip.Addr // of SynRouter: who is asked for the options of its connections; nil: those that are known
}

// SynMode says where a protected service lives.
type SynMode uint8

// The modes.
const (
	SynModeAuto SynMode = iota // on this host when it listens on the port, else behind it
	SynHost                    // on this host: XDP answers, and the kernel goes on as if it had
	SynRouter                  // behind this host, which forwards: XDP answers in front of the kernel's SYNPROXY
)

// Guard is the guard of a DNS resolver, its defaults worked in.
type Guard struct {
	Pos       Pos
	Limits    []Over        // of queries of unverified clients: what exceeds them is truncated every second time, else dropped
	Total     *Over         // of all unverified clients together, likewise; nil: none
	Verified  []Over        // of queries of verified clients, which are dropped
	Types     []uint32      // of queries that only verified clients get answered over UDP
	Replies   *Over         // of truncated responses to queries of Types and below flooded zones, in all; those beyond are dropped
	Names     *Over         // of responses of a zone that say a name does not exist; above it the zone is flooded; nil: none ever is
	Responses *Over         // of the resolver's responses by destination, in bits; those beyond are dropped
	Verify    time.Duration // how long a client that was answered over TCP is verified; 0: it is not
	Secret    string        // file of DNS cookie secrets, as written; "": cookies are not looked at
	Observe   bool
}

// Tracking is what conntrack does with a service.
type Tracking uint8

// The ways to track a service.
const (
	TrackAsIs Tracking = iota // what the host does anyway
	TrackNot                  // its packets never enter the table
	Track                     // they do, and packets of no connection are dropped
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

// Payload holds when all places of At hold and, unless Contains is empty, one of its patterns is there.
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

// At is bytes at a fixed place.
type At struct {
	Header bool // Offset counts from the L4 header, not from the payload
	Offset uint16
	Value  []byte // no bit set that Mask has not
	Mask   []byte // of the same length
}

// DNS holds for messages in UDP, to port 53 unless the rule names ports of its own. Of both keys given each must hold.
type DNS struct {
	Types []Range   // values of packet.DNS, also those that are no query's type; nil: any query
	Names []DNSName // nil: any
}

// DNSName is a name that stands for itself and all below it, or a set of such names.
type DNSName struct {
	Pos  Pos
	Set  string // behind $
	Name string // lower case, without the dot at the end; "" is the root
}

// NameSet is a named list of domain names.
type NameSet struct {
	Pos   Pos
	Name  string
	Names []string
	File  string // as written
}

// Addr is one alternative of from or to: a set, the host's own addresses, or addresses written in place.
type Addr struct {
	Pos   Pos
	Set   string // the name behind $
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

// Flags holds when the TCP flags byte and Mask equal Value.
type Flags struct{ Value, Mask uint8 }

// ICMP is a message type of ICMP or ICMPv6, with a code or, with Code -1, any.
type ICMP struct {
	V6   bool
	Type uint8
	Code int
}
