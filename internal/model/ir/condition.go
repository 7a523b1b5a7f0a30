package ir

import (
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Conditional reports whether r asks for more than addresses and fields, so that it may not decide what these match.
func (r *Rule) Conditional() bool {
	return len(r.Names)+len(r.Payload)+len(r.Over)+len(r.Sources) > 0 || r.Connections != nil || r.Reply || r.Asks != NoFlood || r.Unanswered || r.Observe || r.Until != 0
}

// Decided calls do with each range of ports, as packet.DPort has them, at which a rule decides all that arrives before any asks whether it
// is a reply.
func (p *Program) Decided(do func(Range)) {
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.Reply {
			return
		}
		if r.Conditional() || len(r.Src)+len(r.Dst) > 0 || len(r.Match) != 1 || r.Match[0].Field != packet.DPort {
			continue
		}
		for _, v := range r.Match[0].Values {
			if v.First < packet.PortNone {
				do(Range{First: v.First, Last: min(v.Last, packet.PortNone-1)})
			}
		}
	}
}

// Bans reports whether packets of r have their sources banned, if these exceed a limit often enough.
func (p *Program) Bans(r *Rule) bool {
	return !r.Observe && slices.ContainsFunc(r.Over, func(i int) bool { return p.Limits[i].Ban != nil })
}

// NameSet is a list of domain names, each of which stands for itself and all below it.
type NameSet struct {
	Name  string   // of the policy; "" for names written in a rule
	Names []string // lower case, without the dot at the end; "" is the root: all names
}

// NameMatch holds when the name a DNS query asks for is in any of Sets, or with Not when that is not so: no other packet
// has such a name.
type NameMatch struct {
	Sets []int // by their index in Program.Names
	Not  bool
}

// PayloadMatch holds when all of At hold and, unless Any is empty, one of the patterns is there; or with Not when that
// is not so. A later fragment has no payload: no pattern is there.
type PayloadMatch struct {
	Any []Pattern
	At  []At
	Not bool
}

// Pattern is text that may stand anywhere within the first bytes of the payload.
type Pattern struct {
	Text   []byte // 1 to 64 bytes; lower case with NoCase
	NoCase bool   // ASCII letters match in either case
	Within uint16 // the text must end within so many bytes of the payload
}

// At is bytes at a fixed place. It does not hold when the packet ends before them.
type At struct {
	Base   Base
	Offset uint16
	Value  []byte // 1 to 16 bytes, no bit set that Mask has not
	Mask   []byte // of the same length
}

// Base is where an offset counts from.
type Base uint8

// The bases.
const (
	BasePayload Base = iota // the start of the payload
	BaseL4                  // the start of the L4 header
)

// Limit is a rate that packets may have together, by prefix of their addresses. It is a generic cell rate algorithm (ITU-T
// I.371, the virtual scheduling form): packets that conform are charged, those above are not.
type Limit struct {
	Rule  string        // its name, for reports
	Rate  uint64        // packets or bits in the time Per
	Per   time.Duration // 1 s, 1 min, 1 h or 24 h
	Bits  bool          // Rate and Burst are in bits of IP packets, header included
	Burst uint64        // packets or bits that may come at once, at least 1 packet or the bits of 1,500 bytes
	Src   *Prefixes     // one limit for each prefix of the source, nil: not by source
	Dst   *Prefixes     // and of the destination; both nil is one limit for all
	Max   int           // prefixes that can be held at a time
	Ban   *Ban          // of what exceeds it, or nil

	// Lenient: a target whose table, when it is full, drops what it has no place for does without this limit.
	Lenient bool
}

// ConnLimit is how many connections that the rule matches there may be at a time. The packet that begins one more exceeds it; no other
// packet does. At least one of Src and Dst is there.
type ConnLimit struct {
	Most uint32    // connections, at least 1
	Src  *Prefixes // one count for each prefix of the source, nil: not by source
	Dst  *Prefixes // and of the destination
	Max  int       // prefixes that can be held at a time, 0: as many as is usual
}

// Prefixes are the lengths to which addresses are cut.
type Prefixes struct{ V4, V6 int }

// Of is the prefix of an address.
func (p *Prefixes) Of(a netip.Addr) netip.Prefix {
	length := p.V6
	if a.Is4() {
		length = p.V4
	}
	prefix, _ := a.Prefix(length)
	return prefix
}

// Ban says that offending prefixes of sources are put into a dynamic set.
type Ban struct {
	Set       int // its index in Program.Sets
	For       time.Duration
	Forgeable bool // packets count that prove no address
}

// Guard is what protects a resolver beside rules: what it learns of clients, and what leaves.
type Guard struct {
	Service string
	Line    int           // in the policy file
	Col     int           // likewise
	Ports   []Range       // of the service, as values of packet.DPort
	Verify  time.Duration // how long a client that has been answered over TCP counts as verified
	Secrets [][16]byte    // of DNS cookies (RFC 9018), the present one first; none: cookies are not looked at
	Out     int           // the limit of responses by destination, in Program.Limits; -1 is none
	Observe bool

	// Names, unless it is nil, has what leaves tell which zones are flooded, and which names were answered (bpf/response.h).
	Names *Names
}

// Names are the limits by which zones are flooded, in Program.Limits. They count by a hash of a domain, in the place of an IPv6 address. A zone is flooded for ZoneTime after Flooded was exceeded, and as long as GoOn is.
type Names struct {
	Flooded int // of responses without an answer, by zone
	GoOn    int // of queries of which Rule.Unanswered holds, by zone
	New     int // of names that are answered for the first time, by domain of two labels
}

// ZoneTime is how long a zone is flooded after a limit was exceeded, and AnsweredLife how long a name is remembered that was answered: bpf/zone.h.
const (
	ZoneTime     = 10 * time.Second
	AnsweredLife = 20116 << 32 * time.Nanosecond
)
