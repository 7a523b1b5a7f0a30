// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// standing is how well the sender of a packet is known.
type standing uint8

const (
	stranger standing = iota
	asked             // this host has answered it, but it is not known yet whether it receives the answers
	replied           // it answers a question of this host
	known             // it sent packets in quiet times
	returned          // this host answers its datagrams, and it continued half a second later or more: it receives the answers, or is a forged source of a list that repeats
	proved            // it completed a TCP handshake, or continued in a connection: it receives the answers
	open              // the kernel has this TCP connection
)

// The bounds of the tables of conversations.
const (
	comesBack    = 500 * time.Millisecond // a sender that continues this long after an answer receives answers; a forged source does so only by chance
	mostAnswered = 1 << 15                // senders of each of two generations
	answeredFor  = time.Minute            // least time that a sender is kept, unless there are more than mostAnswered
	heldFor      = 5 * time.Second        // how long a sender stays proved after the last sampled answer
	leastAnswers = 0.2                    // packets that leave for each that arrives; with fewer, a sender is not proved: a reflector's packets to the port of a service also get an answer now and then
)

// end is a sender and the port of this host that the sender uses. A sender that is answered at one port is still a stranger at other ports.
type end struct {
	addr netip.Addr
	port port
}

// conversations contains the senders that this host answers, and records which of them continued after an answer. Only packets that leave add
// entries. Forged packets that this host does not answer add nothing, and an answer to a forged packet does not prove the sender.
type conversations struct {
	now, before map[end]*answered
	turned      time.Time
}

type answered struct {
	first   time.Time
	last    time.Time // time of the last answer
	back    bool
	held    bool    // whether it was proved before
	in, out float32 // packets since `first`
}

// proved reports whether a sender receives the answers, and whether this host answers most of the sender's packets. A proved sender stays proved
// while the answers continue: forged packets in the sender's name are not answered, and must not make the sender a stranger.
func (a *answered) proved(at time.Time) bool {
	if !a.back {
		return false
	}
	if a.out >= leastAnswers*a.in {
		a.held = true
		return true
	}
	return a.held && at.Sub(a.last) < heldFor
}

// answers records packets that this host sent to an address.
func (c *conversations) answers(to end, at time.Time, packets float64) {
	if c.now == nil || at.Sub(c.turned) > answeredFor || len(c.now) >= mostAnswered {
		c.now, c.before, c.turned = make(map[end]*answered), c.now, at
	}
	s, ok := c.find(to)
	if !ok {
		s = &answered{first: at}
		c.now[to] = s
	}
	s.out += float32(packets)
	s.last = at
}

// completes records that a sender has acknowledged a SYN-ACK.
func (c *conversations) completes(from end, at time.Time) {
	if _, ok := c.find(from); !ok {
		c.answers(from, at, 0)
	}
	s, _ := c.find(from)
	s.back, s.last = true, at
}

// find returns a sender, and moves the sender to the present generation.
func (c *conversations) find(a end) (*answered, bool) {
	if s, ok := c.now[a]; ok {
		return s, true
	}
	s, ok := c.before[a]
	if ok && len(c.now) < mostAnswered {
		c.now[a] = s
	}
	return s, ok
}

// arrives records packets from an address. It reports whether this host has answered the sender before, and whether the sender is proved.
func (c *conversations) arrives(from end, at time.Time, packets float64) (answered, proved bool) {
	s, ok := c.find(from)
	if !ok {
		return false, false
	}
	s.in += float32(packets)
	s.back = s.back || at.Sub(s.first) >= comesBack
	return true, s.proved(at)
}

// partner reports whether a sender has a conversation with this host, or had one recently.
func (c *conversations) partner(a end) bool {
	_, ok := c.find(a)
	return ok
}

// isAnswer reports whether an outgoing packet shows that its receiver has a conversation with this host. It is false for a SYN-ACK, because every SYN
// gets one, for a reset, and for packets without ports.
func isAnswer(s *suggest.Sample) bool {
	switch s.Value[packet.Proto] {
	case packet.ProtoTCP:
		return s.Value[packet.Flags] != packet.FlagsNone && s.Value[packet.Flags]&(syn|rst) == 0
	case packet.ProtoUDP:
		return s.Value[packet.Fragment] != packet.FragmentLater
	}
	return false // otherwise a sender of pings would count as known in tunnels and fragments, which have no ports
}

// seen is a packet that arrived within the last windowTime.
type seen struct {
	suggest.Sample
	standing standing
	place    *load // the service that the packet went to, or traffic.other
}

func (s *seen) passed() bool { return s.Verdict == ir.Pass.String() }

// Limits of the window.
const (
	windowTime   = 2 * time.Second
	mostSeen     = 8000
	mostSearched = 2000 // samples in which rules are searched: enough to find a kind of packets with a share of 1/40
)

// window contains the packets that arrived within the last windowTime, the oldest first.
type window struct{ list []seen }

func (w *window) add(s seen) {
	if len(w.list) >= mostSeen {
		w.list = slices.Delete(w.list, 0, mostSeen/4)
	}
	w.list = append(w.list, s)
}

// since returns the packets from a time on.
func (w *window) since(at time.Time) []seen {
	i, _ := slices.BinarySearchFunc(w.list, at, func(s seen, at time.Time) int { return s.Time.Compare(at) })
	return w.list[i:]
}

// forget drops packets older than windowTime.
func (w *window) forget(now time.Time) {
	if n := len(w.list) - len(w.since(now.Add(-windowTime))); n > 0 {
		w.list = slices.Delete(w.list, 0, n)
	}
}

// covers returns the part of a time span up to now that the window covers. It is shorter than span when more packets came than the window holds.
func (w *window) covers(now time.Time, span time.Duration) time.Duration {
	if len(w.list) < mostSeen/2 {
		return span
	}
	return min(span, max(tenth, now.Sub(w.list[0].Time)))
}

// passing returns the samples that passed within a time span up to now.
func (w *window) passing(now time.Time, span time.Duration) []suggest.Sample {
	var list []*seen
	recent := w.since(now.Add(-span))
	for i := range recent {
		if s := &recent[i]; s.passed() {
			list = append(list, s)
		}
	}
	return evenly(list, mostSearched)
}

// familiar returns samples of senders that are no strangers, evenly spaced. most is the largest number of returned samples.
func (w *window) familiar(most int) []suggest.Sample {
	var list []*seen
	for i := range w.list {
		if w.list[i].standing >= returned {
			list = append(list, &w.list[i])
		}
	}
	return evenly(list, most)
}

// evenly copies items of a list, evenly spaced. most is the largest number of copied items.
func evenly(list []*seen, most int) []suggest.Sample {
	drawn := make([]suggest.Sample, min(len(list), most))
	for i := range drawn {
		drawn[i] = list[i*len(list)/len(drawn)].Sample
	}
	return drawn
}

// sockets contains the TCP connections of the kernel, by both endpoints. They are listed again while a load rises.
type sockets struct {
	list map[datapath.Connection]bool
	of   []datapath.Connection
}

// renew replaces the list of connections. It returns false if the list is the same.
func (o *sockets) renew(connections []datapath.Connection) (fresh bool) {
	if len(connections) > 0 && len(o.of) > 0 && &connections[0] == &o.of[0] {
		return false
	}
	o.of, o.list = connections, make(map[datapath.Connection]bool, len(connections))
	for _, c := range connections {
		o.list[c] = true
	}
	return true
}

// has reports whether a packet belongs to one of the connections.
func (o *sockets) has(s *suggest.Sample) bool {
	if len(o.list) == 0 || s.Value[packet.Proto] != packet.ProtoTCP || s.Value[packet.SPort] >= packet.PortUDP || s.Value[packet.DPort] >= packet.PortUDP {
		return false
	}
	from := netip.AddrPortFrom(s.Src, uint16(s.Value[packet.SPort]))
	to := netip.AddrPortFrom(s.Dst, uint16(s.Value[packet.DPort]))
	return o.list[datapath.Connection{Client: from, Server: to}] || o.list[datapath.Connection{Client: to, Server: from}]
}
