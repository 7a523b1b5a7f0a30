// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// This file proves that a sender is genuine by stronger evidence than a second packet: the sender completed a handshake, or answered a question of
// this host.

// recent is a table of outgoing packets of the last time. Incoming packets add no entries. When the newer half is full, the older half is dropped.
type recent[K comparable, V any] struct {
	now, before map[K]V
	turned      time.Time
}

// Limits of the table recent.
const (
	mostRecent = 1 << 14
	recentFor  = 30 * time.Second // least time that an entry is kept, unless there are more entries than mostRecent: a question waits this long for its answer
)

func (r *recent[K, V]) put(key K, v V, at time.Time) {
	if r.now == nil || len(r.now) >= mostRecent || at.Sub(r.turned) > recentFor {
		r.now, r.before, r.turned = make(map[K]V), r.now, at
	}
	r.now[key] = v
}

func (r *recent[K, V]) get(key K) (v V, ok bool) {
	if v, ok = r.now[key]; !ok {
		v, ok = r.before[key]
	}
	return v, ok
}

// flow is a conversation: the address and port of the other side, and the port of this host.
type flow struct {
	addr        netip.Addr
	other, here port
}

// arrived returns the flow of an incoming packet, and left returns the flow of an outgoing packet.
func arrived(s *suggest.Sample) flow {
	return flow{s.Src, port(s.Value[packet.SPort]), port(s.Value[packet.DPort])}
}

func left(s *suggest.Sample) flow {
	return flow{s.Dst, port(s.Value[packet.DPort]), port(s.Value[packet.SPort])}
}

// handshakes contains the sequence numbers of SYN-ACKs that left. A segment that acknowledges such a number is from a sender that received the
// SYN-ACK, because no other sender knows the number.
type handshakes struct{ recent[flow, uint32] }

// Offsets in the header of TCP (RFC 9293, 3.1).
const (
	tcpSequence = 4
	tcpAcknowl  = 8
	tcpHeader   = 20
)

// leaves records a SYN-ACK.
func (h *handshakes) leaves(s *suggest.Sample) {
	if f := s.Value[packet.Flags]; f != packet.FlagsNone && f&(syn|ack) == syn|ack && len(s.L4) >= tcpHeader {
		h.put(left(s), binary.BigEndian.Uint32(s.L4[tcpSequence:])+1, s.Time)
	}
}

// completed reports whether a segment completes a handshake.
func (h *handshakes) completed(s *suggest.Sample) bool {
	f := s.Value[packet.Flags]
	if f == packet.FlagsNone || f&(syn|ack) != ack || len(s.L4) < tcpHeader || s.Value[packet.Proto] != packet.ProtoTCP {
		return false
	}
	number, ok := h.get(arrived(s))
	return ok && binary.BigEndian.Uint32(s.L4[tcpAcknowl:]) == number
}

// asks reports, by the ports, whether an outgoing datagram is a question of this host to a service on another host. An answer goes to a client's port
// instead, which is high.
func (t *traffic) asks(s *suggest.Sample) bool {
	if s.Value[packet.Proto] != packet.ProtoUDP || s.Value[packet.Fragment] == packet.FragmentLater {
		return false
	}
	f := left(s)
	if t.services[f.here] != nil || f.here < packet.PortUDP || f.here >= packet.PortNone {
		return false
	}
	to := uint32(f.other - packet.PortUDP)
	const wellKnown = 1024
	return to < wellKnown || reflectors[to] != ""
}

// question is a question of this host. The list of questions shows how often each port of other hosts is asked.
type question struct {
	at      time.Time
	other   port
	packets float64
}

// questions contains the questions of this host.
type questions struct {
	recent[flow, struct{}]
	list []question // of the last riseTenths, the oldest first
}

// leaves records a question.
func (q *questions) leaves(s *suggest.Sample) {
	f, at := left(s), s.Time
	q.put(f, struct{}{}, at)
	n := 0
	for n < len(q.list) && (len(q.list)-n >= mostSeen || at.Sub(q.list[n].at) > windowTime) {
		n++
	}
	q.list = append(q.list[n:], question{at, f.other, s.Stands})
}

// answered reports whether a packet comes from an address and port that this host has asked.
func (q *questions) answered(s *suggest.Sample) bool {
	if s.Value[packet.Proto] != packet.ProtoUDP {
		return false
	}
	_, ok := q.get(arrived(s))
	return ok
}

// since returns the number of questions since a time, by the port that was asked.
func (q *questions) since(at time.Time) map[port]float64 {
	by := map[port]float64{}
	for i := len(q.list) - 1; i >= 0 && !q.list[i].at.Before(at); i-- {
		by[q.list[i].other] += q.list[i].packets
	}
	return by
}

// unseen estimates how many packets a second to no service are answers to unsampled questions. With a low sampling rate, few answers have their
// question among the samples. So packets from a port count as answers, up to the number of questions to that port.
func (t *traffic) unseen(now time.Time) float64 {
	since := now.Add(-riseTenths * tenth)
	asked := t.questions.since(since)
	if len(asked) == 0 {
		return 0
	}
	came, known := map[port]float64{}, map[port]float64{}
	list := t.window.since(since)
	for i := range list {
		if s := &list[i]; s.place == t.other {
			from := port(s.Value[packet.SPort])
			came[from] += s.Stands
			if s.standing >= replied {
				known[from] += s.Stands
			}
		}
	}
	sum := 0.0
	for from, n := range asked {
		sum += max(0, min(n, came[from])-known[from])
	}
	return sum / (riseTenths * tenth).Seconds()
}
