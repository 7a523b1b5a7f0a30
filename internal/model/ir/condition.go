// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Conditional reports whether r has tests other than those of addresses and fields, or only counts, or ends at a time. Such a rule may not decide all
// packets that its tests of addresses and fields match.
func (r *Rule) Conditional() bool {
	return len(r.Names)+len(r.Payload)+len(r.Over)+len(r.Sources) > 0 || r.Connections != nil || r.Reply || r.Spares || r.Asks != NoFlood || r.Unanswered || r.Observe || r.Until != 0
}

// Decided calls do for ranges of destination ports, as values of packet.DPort. All packets to these ports are decided before the first rule that
// tests for replies.
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

// Bans reports whether r bans sources that exceed a limit.
func (p *Program) Bans(r *Rule) bool {
	return !r.Observe && slices.ContainsFunc(r.Over, func(i int) bool { return p.Limits[i].Ban != nil })
}

// NameSet is a list of domain names. Each name stands for itself and for all names below it.
type NameSet struct {
	Name  string   // the name in the policy; "" for names written in a rule
	Names []string // lower case, without the dot at the end; "" is the root: all names
}

// NameMatch holds if the name in a DNS query is in any of Sets. With Not, it holds if the name is in none of Sets, and also for all packets that are
// not DNS queries.
type NameMatch struct {
	Sets []int // indices in Program.Names
	Not  bool
}

// PayloadMatch holds if all tests of At hold and, unless Any is empty, the payload contains one of the patterns. With Not, it holds if this is not
// the case. A later fragment has no payload, so it contains no pattern.
type PayloadMatch struct {
	Any []Pattern
	At  []At
	Not bool
}

// Pattern is text that is searched in the first bytes of the payload.
type Pattern struct {
	Text   []byte // 1 to 64 bytes; lower case with NoCase
	NoCase bool   // ASCII letters match in either case
	Within uint16 // the text must end within this number of bytes of the payload
}

// At tests bytes at a fixed offset. If the packet ends before the end of these bytes, the test fails.
type At struct {
	Base   Base
	Offset uint16
	Value  []byte // 1 to 16 bytes; bits that are not set in Mask are 0
	Mask   []byte // of the same length
}

// Base is the place from which an offset counts.
type Base uint8

// The bases.
const (
	BasePayload Base = iota // the start of the payload
	BaseL4                  // the start of the L4 header
)

// Limit is a rate limit. Each prefix of the packets' addresses has its own rate, or all packets share one. The limit is the generic cell rate
// algorithm (ITU-T I.371, virtual scheduling). Packets that conform are charged. Packets above the limit are not charged.
type Limit struct {
	Rule  string        // the rule's name, for reports
	Rate  uint64        // packets or bits in the time Per
	Per   time.Duration // 1 s, 1 min, 1 h or 24 h
	Bits  bool          // Rate and Burst are in bits of IP packets, header included
	Burst uint64        // packets or bits that may come at once; at least 1 packet, or the bits of 1,500 bytes
	Src   *Prefixes     // each source prefix has its own rate; nil: sources are not distinguished
	Dst   *Prefixes     // likewise for destinations; both nil: all packets share one rate
	Max   int           // largest number of prefixes at a time
	Ban   *Ban          // bans sources that exceed the limit; nil: no ban

	// Lenient limits are left out by targets that would drop packets of further prefixes while the limit's table is full.
	Lenient bool
}

// ConnLimit is the largest number of simultaneous connections that a rule allows. Only a packet that opens a further connection exceeds it. At least
// one of Src and Dst is set.
type ConnLimit struct {
	Most uint32    // connections, at least 1
	Src  *Prefixes // each source prefix has its own count; nil: sources are not distinguished
	Dst  *Prefixes // likewise for destinations
	Max  int       // the largest number of prefixes at a time; 0: the target's default
}

// Prefixes has the prefix lengths of both families.
type Prefixes struct{ V4, V6 int }

// Of returns the prefix of an address.
func (p *Prefixes) Of(a netip.Addr) netip.Prefix {
	length := p.V6
	if a.Is4() {
		length = p.V4
	}
	prefix, _ := a.Prefix(length)
	return prefix
}

// Ban adds prefixes of offending sources to a dynamic set.
type Ban struct {
	Set       int // index in Program.Sets
	For       time.Duration
	Forgeable bool // packets that do not prove their source also cause bans
}

// Guard is the part of a resolver's protection that is not a rule: the verification of clients, and the handling of outgoing responses.
type Guard struct {
	Service string
	Line    int           // in the policy file
	Col     int           // likewise, the column
	Ports   []Range       // of the service, as values of packet.DPort
	Verify  time.Duration // how long a client counts as verified after an answer over TCP
	Secrets [][16]byte    // secrets of DNS cookies (RFC 9018), the current one first; none: cookies are ignored
	Out     int           // index in Program.Limits of the limit of responses by destination; -1: none
	Observe bool

	// Names are the limits by which outgoing responses decide which zones are flooded (bpf/response.h). nil: zones are not observed.
	Names *Names
}

// Names has the limits that decide which zones are flooded, by their index in Program.Limits. They count by the hash of a domain, in place of an IPv6
// address. A zone is flooded for ZoneTime after Flooded was exceeded, and while GoOn is exceeded.
type Names struct {
	Flooded int // limit of responses without an answer, by zone
	GoOn    int // limit of queries for which Rule.Unanswered is true, by zone
	New     int // limit of names that are answered for the first time, by the domain of their last two labels
}

// ZoneTime is the time for which a zone is flooded after a limit was exceeded. AnsweredLife is the time for which an answered name is remembered.
// Both are in bpf/zone.h.
const (
	ZoneTime     = 10 * time.Second
	AnsweredLife = 20116 << 32 * time.Nanosecond
)
