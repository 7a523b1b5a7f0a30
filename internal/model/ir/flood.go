// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"fmt"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Flood has the parameters by which floods at a UDP service are detected. The service's answers decide which clients are known. A client becomes
// known when two conditions have held in KnownTimes units of time (KnownUnit): the service has answered the client, and afterwards the client has
// sent again. So this takes at least KnownTimes-2 whole units. A client is no longer known when it has sent nothing for KnownLife. Packets of all
// other clients are charged to Start. There is a flood for FloodTime after they have exceeded Start, and while they exceed Stop.
type Flood struct {
	Service  string
	Protocol packet.Datagrams // of the service
	Line     int              // in the policy file
	Col      int              // likewise, the column
	Ports    []Range          // of UDP, as values of packet.DPort
	Start    int              // the limits Start and Stop, as indices in Program.Limits; so are all limits below
	Stop     int
	Each     int   // the limit of a known client, to which one packet in KnownShare is charged; a client that exceeds it during a flood is no longer known
	Proved   int   // the limit of all packets with an identifier, of which also one in KnownShare is charged; Generic has none
	Answered int   // the limit of all packets that pass because of AsksAnswered; A2S and RakNet have none
	Again    []int // the limits of packets that pass because of AsksAgain; the last one is for all of them together
}

// The parameters of known clients, as in bpf/replyflow.h and bpf/flood.h.
const (
	KnownTimes = 4
	KnownUnit  = 1 << 32 * time.Nanosecond
	KnownLife  = 42 * KnownUnit
	KnownShare = 16
	MayPass    = 12                        // the number of packets that pass from a new client that the service has answered
	PassWait   = 2 * KnownUnit             // the longest time between two of these packets, in whole units
	AgainUnit  = 1 << 27 * time.Nanosecond // a packet repeats a refused packet with the same addresses and ports if it comes in a later unit of this time
	AgainMost  = 60                        // the largest number of units between a refused packet and its repetition
	AgainTimes = 64                        // numbers of units are counted modulo this number: bpf/newcomer.h
	FloodTime  = 10 * time.Second
)

// FloodQuestion is a rule's test of the state of a flood at a UDP service.
type FloodQuestion uint8

// The questions. bpf/flood.h uses the same numbers.
const (
	NoFlood      FloodQuestion = iota // the rule has no question
	AsksKnown                         // whether the packet is from a known client
	AsksCalm                          // whether there is no flood of packets from unknown clients
	AsksProved                        // whether the packet has an identifier issued by the service (A2S: to the sender), or a cookie of Floodwall (RakNet: only that)
	AsksSpent                         // whether the packet would exceed half of the burst of the only limit in Over; nothing is charged
	AsksStray                         // whether the packet, by its form, cannot be the first packet of a client
	AsksServed                        // whether the packet is a query with a cookie of Floodwall, and an answer of the service to it is stored
	AsksQuery                         // whether the packet is a query (packet.Datagrams.Asks) that proves its source address
	AsksOpening                       // whether Floodwall answers the packet with a challenge (packet.Datagrams.Opens), because it does not prove its source address
	AsksAnswered                      // whether there is a flood, and the packet is one of the few that an unknown client may send after an answer of the service
	AsksAgain                         // whether the packet repeats a refused packet in time (AgainUnit, AgainMost), and is within the limits of Again
)

// String returns the word for q in listings.
func (q FloodQuestion) String() string {
	return [...]string{AsksKnown: "known", AsksCalm: "calm", AsksProved: "proved", AsksSpent: "spent", AsksStray: "stray", AsksServed: "served", AsksQuery: "query", AsksOpening: "opening", AsksAnswered: "answered", AsksAgain: "again"}[q]
}

// asked reports whether the answer to r's question about a flood is yes. A rule without a question has the answer yes, too.
func (e *evaluation) asked(r *Rule) bool {
	switch r.Asks {
	case AsksKnown:
		return e.Known != nil && e.Known(e.pkt)
	case AsksAnswered:
		return e.Answered != nil && e.Answered(r.Flood, e.pkt)
	case AsksAgain:
		return e.Again != nil && e.Again(r.Flood, e.pkt)
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

// floodLine returns a line of text that describes how floods at a service are detected.
func (p *Program) floodLine(f *Flood) string {
	proved := ""
	if f.Protocol != packet.Generic {
		proved = " proved=" + p.LimitText(f.Proved)
	}
	if !f.Protocol.Challenged() {
		proved += " answered=" + p.LimitText(f.Answered)
	}
	for _, limit := range f.Again {
		proved += " again=" + p.LimitText(limit)
	}
	return strings.Join([]string{
		"flood " + f.Service + ":", f.Protocol.String(), Match{packet.DPort, f.Ports}.values(),
		"start=" + p.LimitText(f.Start), "stop=" + p.LimitText(f.Stop), fmt.Sprintf("known=%s of 1/%d", p.LimitText(f.Each), KnownShare),
	}, " ") + proved
}
