package attack

import (
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// standing is what is known of the sender of a packet.
type standing uint8

const (
	stranger standing = iota
	asked             // this host has answered it a moment ago: whether it gets the answers is not known yet
	known             // it was here in quiet times
	proved            // this host answers it, and it went on half a second later or more: it gets the answers
	open              // the kernel has this TCP connection
)

// The bounds of what is known of conversations.
const (
	comesBack    = 500 * time.Millisecond // after an answer: who goes on then gets it. A forged sender does so by chance
	mostAnswered = 1 << 15                // senders of each of two generations
	answeredFor  = time.Minute            // at least, unless there are more of them
	heldFor      = 5 * time.Second        // after the last answer that was sampled
	leastAnswers = 0.2                    // packets that leave for one that comes: a reflector that hits the port of a service is answered now and then
)

// end is a sender and the port of this host that it talks to: who is answered at one port is no less a stranger at others.
type end struct {
	addr netip.Addr
	port port
}

// conversations knows whom this host answers, and who of them went on after that. It is written to by what leaves alone: forged packets
// that this host does not answer add nothing, and those that it answers do not make their senders proved.
type conversations struct {
	now, before map[end]*answered
	turned      time.Time
}

type answered struct {
	first   time.Time
	last    time.Time // answer
	back    bool
	held    bool    // it was proved
	in, out float32 // packets since then
}

// proved reports whether a sender gets the answers, and whether these are for most of what it sends. Who has proved that stays proved while the answers
// go on: forged packets in its name are not answered, and must not take its standing away.
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

// answers notes that packets left for an address.
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

// find finds a sender, and keeps it.
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

// arrives notes that packets came from an address, and reports whether this host has answered it before, and whether it is proved.
func (c *conversations) arrives(from end, at time.Time, packets float64) (answered, proved bool) {
	s, ok := c.find(from)
	if !ok {
		return false, false
	}
	s.in += float32(packets)
	s.back = s.back || at.Sub(s.first) >= comesBack
	return true, s.proved(at)
}

// isAnswer reports whether a packet that leaves tells that this host takes its receiver for a partner: no SYN-ACK, which every SYN gets, no
// reset, and nothing without ports.
func isAnswer(s *suggest.Sample) bool {
	switch s.Value[packet.Proto] {
	case packet.ProtoTCP:
		return s.Value[packet.Flags] != packet.FlagsNone && s.Value[packet.Flags]&(syn|rst) == 0
	case packet.ProtoUDP:
		return s.Value[packet.Fragment] != packet.FragmentLater
	}
	return false // without ports, who pings would be no stranger in tunnels and fragments
}

// seen is a packet that came in the last moments.
type seen struct {
	suggest.Sample
	at       time.Time
	passed   bool
	packets  float64 // that it stands for
	standing standing
	place    *load // the service that it went to, or other
}

// The bounds of what is kept of the last moments.
const (
	windowTime   = 2 * time.Second
	mostSeen     = 8000
	mostSearched = 2000 // samples that rules are searched in: as many tell a kind that is a fortieth of them
)

// window is what came in the last moments, the oldest first.
type window struct{ list []seen }

func (w *window) add(s seen) {
	if len(w.list) >= mostSeen {
		w.list = slices.Delete(w.list, 0, mostSeen/4)
	}
	w.list = append(w.list, s)
}

// since are the packets from a time on.
func (w *window) since(at time.Time) []seen {
	i, _ := slices.BinarySearchFunc(w.list, at, func(s seen, at time.Time) int { return s.at.Compare(at) })
	return w.list[i:]
}

// forget drops what is older than windowTime.
func (w *window) forget(now time.Time) {
	if n := len(w.list) - len(w.since(now.Add(-windowTime))); n > 0 {
		w.list = slices.Delete(w.list, 0, n)
	}
}

// covers is how much of a span up to now the list has: less when more came than it holds.
func (w *window) covers(now time.Time, span time.Duration) time.Duration {
	if len(w.list) < mostSeen/2 {
		return span
	}
	return min(span, max(tenth, now.Sub(w.list[0].at)))
}

// passing are the samples of a moment that passed.
func (w *window) passing(now time.Time, span time.Duration) []suggest.Sample {
	var list []*seen
	recent := w.since(now.Add(-span))
	for i := range recent {
		if s := &recent[i]; s.passed {
			list = append(list, s)
		}
	}
	return evenly(list, mostSearched)
}

// familiar are the samples of senders that are no strangers, drawn evenly.
func (w *window) familiar(most int) []suggest.Sample {
	var list []*seen
	for i := range w.list {
		if w.list[i].standing >= proved {
			list = append(list, &w.list[i])
		}
	}
	return evenly(list, most)
}

// evenly copies so many of a list at most.
func evenly(list []*seen, most int) []suggest.Sample {
	drawn := make([]suggest.Sample, min(len(list), most))
	for i := range drawn {
		drawn[i] = list[i*len(list)/len(drawn)].Sample
	}
	return drawn
}

// sockets are the TCP connections that the kernel has, by both ends. They are listed again while something has risen.
type sockets struct {
	list map[datapath.Connection]bool
	of   []datapath.Connection
}

// renew takes a list of the connections over.
func (o *sockets) renew(connections []datapath.Connection) {
	if len(connections) > 0 && len(o.of) > 0 && &connections[0] == &o.of[0] {
		return
	}
	o.of, o.list = connections, make(map[datapath.Connection]bool, len(connections))
	for _, c := range connections {
		o.list[c] = true
	}
}

// has reports whether a packet is of one of them.
func (o *sockets) has(s *suggest.Sample) bool {
	if len(o.list) == 0 || s.Value[packet.Proto] != packet.ProtoTCP || s.Value[packet.SPort] >= packet.PortUDP || s.Value[packet.DPort] >= packet.PortUDP {
		return false
	}
	from := netip.AddrPortFrom(s.Src, uint16(s.Value[packet.SPort]))
	to := netip.AddrPortFrom(s.Dst, uint16(s.Value[packet.DPort]))
	return o.list[datapath.Connection{Client: from, Server: to}] || o.list[datapath.Connection{Client: to, Server: from}]
}

// standsFor is how many packets a sample stands for.
func standsFor(s *sample.Sample, oneIn uint32) float64 {
	if s.Stands > 0 {
		return s.Stands
	}
	return float64(max(1, oneIn))
}
