package ir

import (
	"fmt"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Flood is how floods at a UDP service are detected. Clients of the service are known by what it answers: one that it has answered in
// KnownTimes units of KnownUnit, having come again since each time, is known until it stays away for KnownLife. So it takes at least
// KnownTimes-2 whole units to become known. Packets of all others are charged to Start; there is a flood for FloodTime after they have exceeded
// it, and while they exceed Stop.
type Flood struct {
	Service  string
	Protocol packet.Datagrams // of the service
	Line     int              // in the policy file
	Col      int              // likewise
	Ports    []Range          // of UDP, as values of packet.DPort
	Start    int              // limits, by their index in Program.Limits
	Stop     int
	Each     int // the limit of a source's packets as a known client, of which one in KnownShare is charged; one that exceeds it during a flood is known no more
	Proved   int // the limit of all packets together that have an identifier, likewise; Generic has none
}

// What makes a client known: bpf/replyflow.h, and bpf/flood.h.
const (
	KnownTimes = 4
	KnownUnit  = 1 << 32 * time.Nanosecond
	KnownLife  = 42 * KnownUnit
	KnownShare = 16
	FloodTime  = 10 * time.Second
)

// FloodQuestion is what a rule asks about a flood at a UDP service.
type FloodQuestion uint8

// The questions. bpf/flood.h has the same numbers.
const (
	NoFlood     FloodQuestion = iota // the rule asks none
	AsksKnown                        // whether the packet is of a known client
	AsksCalm                         // whether there is no flood of packets of others
	AsksProved                       // whether the packet has an identifier that the service has issued to anybody, of A2S to its sender, or a cookie of ours, of RakNet only that
	AsksSpent                        // whether the one limit in Over would be exceeded: the packet is not charged
	AsksStray                        // whether the packet has not the form of one with which somebody begins to talk
	AsksServed                       // whether the packet is a query with a cookie of ours, and there is an answer of the service to give
	AsksQuery                        // whether the packet is a query, as packet.Datagrams.Asks says, that proves its source's address
	AsksOpening                      // whether it is one that is answered with a challenge, as packet.Datagrams.Opens says, unless it proves its source's address
)

// String is the word of a listing.
func (q FloodQuestion) String() string {
	return [...]string{AsksKnown: "known", AsksCalm: "calm", AsksProved: "proved", AsksSpent: "spent", AsksStray: "stray", AsksServed: "served", AsksQuery: "query", AsksOpening: "opening"}[q]
}

// asked reports whether the answer to what r asks about a flood is yes.
func (e *evaluation) asked(r *Rule) bool {
	switch r.Asks {
	case AsksKnown:
		return e.Known != nil && e.Known(e.pkt)
	case AsksCalm:
		return e.Calm == nil || e.Calm(r.Flood, e.pkt)
	case AsksProved:
		return e.Proved != nil && e.Proved(r.Flood, e.pkt)
	case AsksSpent:
		return e.Spent != nil && e.Spent(r.Over[0], e.pkt)
	case AsksStray:
		return !e.program.Floods[r.Flood].Protocol.Begins(e.pkt.Payload)
	case AsksServed:
		return e.Served != nil && e.Served(r.Flood, e.pkt)
	case AsksQuery:
		return e.program.Floods[r.Flood].Protocol.Asks(e.pkt.Payload) && e.proves(r)
	case AsksOpening:
		return e.program.Floods[r.Flood].Protocol.Opens(e.pkt.Payload) && !e.proves(r)
	}
	return true
}

func (e *evaluation) proves(r *Rule) bool { return e.Proves != nil && e.Proves(r.Flood, e.pkt) }

// floodLine says by what floods at a service are detected.
func (p *Program) floodLine(f *Flood) string {
	proved := ""
	if f.Protocol != packet.Generic {
		proved = " proved=" + p.LimitText(f.Proved)
	}
	return strings.Join([]string{
		"flood " + f.Service + ":", f.Protocol.String(), Match{packet.DPort, f.Ports}.values(),
		"start=" + p.LimitText(f.Start), "stop=" + p.LimitText(f.Stop), fmt.Sprintf("known=%s of 1/%d", p.LimitText(f.Each), KnownShare),
	}, " ") + proved
}
