// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"time"

	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// openings contains answered first packets of conversations with this host. They are few among a service's packets, so a baseline may have none of
// them. A rule that matches all first packets shuts out all newcomers.
type openings struct {
	waiting  recent[end, sample.Sample] // the first packet of a sender without a conversation, until it is answered
	answered []sample.Sample            // answered first packets that take has not returned yet
	from     time.Time                  // when conversations were first observed
}

// The bounds of openings.
const (
	leastOpenings = 30              // least openings of a service to know the packets of newcomers: a rule that matches none of 30 matches at most 12% of all
	settling      = 5 * time.Second // time after the first sample in which no opening is recorded, because a sender that first appears in this time may have been there before
	answerWithin  = 2 * time.Second
)

// arrives records a packet of a sender without a conversation.
func (o *openings) arrives(from end, p sample.Sample) {
	if o.from.IsZero() {
		o.from = p.Time
	}
	if at, ok := o.waiting.get(from); ok && p.Time.Sub(at.Time) < answerWithin {
		return // only the first packet counts
	}
	o.waiting.put(from, p, p.Time)
}

// answers records an answer to a sender. The waiting first packet of that sender becomes an opening.
func (o *openings) answers(to end, at time.Time) {
	p, ok := o.waiting.get(to)
	if !ok || at.Sub(p.Time) > answerWithin || p.Time.Sub(o.from) < settling {
		return
	}
	if len(o.answered) < newServices*leastOpenings {
		o.answered = append(o.answered, p)
	}
}

// take returns the openings since the last call.
func (o *openings) take() []sample.Sample {
	list := o.answered
	o.answered = nil
	return list
}

// samplesOf decodes packets.
func samplesOf(packets []sample.Sample) []suggest.Sample {
	list := make([]suggest.Sample, len(packets))
	for i, s := range packets {
		list[i] = suggest.NewSample(s)
	}
	return list
}

// echoPort replaces the port in conversations of echo requests. It is larger than all ports.
const echoPort port = packet.PortNone + 1

// here returns this host's port of a packet: the destination port, or the source port if the packet leaves.
func here(s *suggest.Sample, leaves bool) port {
	if isEcho(s, leaves) {
		return echoPort
	}
	if leaves {
		return port(s.Value[packet.SPort])
	}
	return port(s.Value[packet.DPort])
}

// isEcho reports whether a packet is an echo request or, if reply is true, an echo reply.
func isEcho(s *suggest.Sample, reply bool) bool {
	kind := s.Value[packet.ICMP]
	if kind == packet.ICMPNone {
		return false
	}
	v6, of := kind >= packet.ICMPv6, kind>>8&0xff
	switch {
	case reply && v6:
		return of == packet.EchoReplyV6
	case reply:
		return of == packet.EchoReply
	case v6:
		return of == packet.EchoRequestV6
	}
	return of == packet.EchoRequest
}
