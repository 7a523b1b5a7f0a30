package attack

import (
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// The bounds of the services that are known by their traffic.
const (
	mostServices = 64
	newServices  = 64    // ports that are counted at a time, to find those that are services
	serviceShare = 0.005 // of what leaves in quiet times leaves from a port that counts as a service,
	serviceLeast = 2.0   // and so many packets a second
	findServices = 5 * time.Second
	mostFamiliar = 1000  // samples of proved senders, which rules are held against beside the baseline
	firstClient  = 32768 // ports from here on are those of clients (net.ipv4.ip_local_port_range)
)

// port is where a service is: a value of packet.DPort.
type port uint32

func (p port) String() string { return suggest.ValueText(packet.DPort, uint32(p)) }

// traffic is what comes to this host and leaves it, by samples: how much at each service, in the last moments and in quiet times, and who
// of the senders is no stranger.
type traffic struct {
	total    *load
	other    *load // what goes to no known service
	services map[port]*load

	leaving *sample.Counter[port] // quiet packets that leave, by the port that they leave from
	found   time.Time             // when services were looked for last
	weight  float64               // packets that they stand for

	conversations conversations
	sockets       sockets
	window        window
	known         map[netip.Addr]bool // senders of the baseline
	egress        bool                // the program at egress samples what leaves; where that is not known, saw tells
	saw           time.Time           // when this host sent something last, by samples,
	forwarded     time.Time           // and when it forwarded something between devices of the policy
}

func newTraffic(least uint64, quiet time.Duration) *traffic {
	named := func(name string) *load { return newLoad(name, least, quiet) }
	return &traffic{total: named("this host"), other: named("no known service"), services: map[port]*load{}, leaving: sample.NewCounter[port](newServices)}
}

func newLoad(name string, least uint64, quiet time.Duration) *load {
	return &load{name: name, rate: rate{least: float64(least), quiet: quiet}}
}

// set has other bounds hold from now on.
func (t *traffic) set(least uint64, quiet time.Duration) {
	for _, l := range t.loads() {
		l.rate.least, l.rate.quiet = float64(least), quiet
	}
}

// loads are all of them, those of services first, in the order of their ports.
func (t *traffic) loads() (list []*load) {
	for _, p := range t.ports() {
		list = append(list, t.services[p])
	}
	return append(list, t.other, t.total)
}

// ports are those of the services.
func (t *traffic) ports() (list []port) {
	for p := range t.services {
		list = append(list, p)
	}
	slices.Sort(list)
	return list
}

// place is the service that a packet goes to, or other.
func (t *traffic) place(s *suggest.Sample) *load {
	if l := t.services[port(s.Value[packet.DPort])]; l != nil && s.Value[packet.Fragment] != packet.FragmentLater {
		return l
	}
	return t.other
}

// sample takes a sample. It returns what it has read of one that arrived, until the next sample; nil of one that left, or that is not IP.
func (t *traffic) sample(p *sample.Sample, oneIn uint32) *seen {
	s := suggest.NewSample(p.Frame, p.Length)
	if s.Kind != packet.IP {
		return nil
	}
	packets, now := standsFor(p, oneIn), p.Time
	switch p.Verdict {
	case sample.Forwarded: // the same packet is a sample of what arrived: its answers look alike
		t.forwarded = now
		return nil
	case sample.Leaves:
		t.leaves(&s, packets, now)
		return nil
	}
	e := seen{Sample: s, at: now, passed: p.Verdict == ir.Pass.String(), packets: packets, place: t.place(&s), standing: t.standing(&s, now, packets)}
	t.window.add(e)
	for _, l := range []*load{e.place, t.total} {
		l.arrives(now, packets, e.standing >= known)
	}
	if e.place != t.other && p.Reason != "" && e.place.name == port(s.Value[packet.DPort]).String() && e.passed && p.Reason != "default" {
		e.place.name = p.Reason // the service or rule of the policy that passes it
	}
	return &t.window.list[len(t.window.list)-1]
}

// blindFor is for how long what was seen to leave tells that the program at egress works, and what was forwarded that answers cannot be told.
const blindFor = 10 * time.Minute

// blind reports whether nobody sees what this host answers.
func (t *traffic) blind(now time.Time) bool {
	seen := func(at time.Time) bool { return !at.IsZero() && now.Sub(at) < blindFor }
	return !t.egress && !seen(t.saw) || seen(t.forwarded)
}

// leaves takes a packet that left.
func (t *traffic) leaves(s *suggest.Sample, packets float64, now time.Time) {
	t.saw = now
	if !isAnswer(s) {
		return
	}
	from := port(s.Value[packet.SPort])
	t.conversations.answers(end{suggest.HostOf(s.Dst), from}, now, packets)
	l := t.services[from]
	if l == nil {
		l = t.other
		t.leaving.Add(from)
		t.weight += packets
	}
	l.leaves(now, packets)
	t.total.leaves(now, packets)
}

// standing is what is known of the sender of a packet that arrived.
func (t *traffic) standing(s *suggest.Sample, now time.Time, packets float64) standing {
	from := s.Sender()
	answered, back := t.conversations.arrives(end{from, port(s.Value[packet.DPort])}, now, packets)
	switch {
	case t.sockets.has(s):
		return open
	case back:
		return proved
	case t.known[from]:
		return known
	case answered:
		return asked
	}
	return stranger
}

// discover looks for services in what leaves, now and then, in a quiet second.
func (t *traffic) discover(now time.Time) {
	span := now.Sub(t.found)
	if span < findServices {
		return
	}
	if !t.found.IsZero() {
		all := float64(t.leaving.Total())
		for _, c := range t.leaving.Top(mostServices) {
			perSecond := float64(c.Least()) * t.weight / max(1, all) / span.Seconds()
			if isService(c.Key) && perSecond >= serviceLeast && float64(c.Least()) >= serviceShare*all && t.mayAdd() {
				t.other = newLoad(t.other.name, uint64(t.other.rate.least), t.other.rate.quiet) // it had the packets of the service
				t.services[c.Key] = newLoad(c.Key.String(), uint64(t.total.rate.least), t.total.rate.quiet)
			}
		}
	}
	t.leaving, t.weight, t.found = sample.NewCounter[port](newServices), 0, now
}

// mayAdd reports whether there is a place for one service more. One that nothing has come to for most of the last minutes makes it.
func (t *traffic) mayAdd() bool {
	if len(t.services) < mostServices {
		return true
	}
	for p, l := range t.services {
		if usual, _ := l.rate.level(); usual == 0 && l.rate.bound == 0 && len(l.rate.usual) == usualSeconds {
			delete(t.services, p)
			return true
		}
	}
	return false
}

// isService reports whether a port can be one of a service: of the others this host is a client.
func isService(p port) bool {
	number := p
	if p >= packet.PortUDP {
		number -= packet.PortUDP
	}
	return p < packet.PortNone && number > 0 && number < firstClient
}

// tick looks which loads have risen.
func (t *traffic) tick(now time.Time, connections func() ([]datapath.Connection, error)) (risen []*load) {
	t.window.forget(now)
	rising := false
	for _, l := range t.loads() {
		if l.tick(now) {
			risen = append(risen, l)
		}
		rising = rising || l.high > 0
	}
	if rising {
		if list, err := connections(); err == nil { // who asks for a rule is told of the error
			t.sockets.renew(list)
		}
	}
	return risen
}

// second takes a second, in which the counters have so many packets in all. It returns what each load does that does anything.
func (t *traffic) second(now time.Time, all float64) map[*load]change {
	turns := map[*load]change{}
	for _, l := range t.loads() {
		packets := all
		if l != t.total {
			l.move(now)
			packets = l.perSecond(&l.in, oneSecond)
		}
		if turn := l.second(now, packets); turn != nothing {
			turns[l] = turn
		}
	}
	return turns
}

// above reports whether any load is above its bound.
func (t *traffic) above() bool {
	return slices.ContainsFunc(t.loads(), func(l *load) bool { return l.rate.above > 0 })
}

// good are samples that rules must spare: those of quiet times, and of senders that have proved themselves in the last moments.
func (t *traffic) good(quiet []suggest.Sample) []suggest.Sample {
	return slices.Concat(quiet, t.window.familiar(mostFamiliar))
}

// knows takes over who was here in quiet times.
func (t *traffic) knows(quiet []suggest.Sample) {
	t.known = make(map[netip.Addr]bool, len(quiet))
	for i := range quiet {
		t.known[quiet[i].Sender()] = true
	}
}

// portOf is the port of a service; false where the load is of none.
func (t *traffic) portOf(l *load) (port, bool) {
	for p, service := range t.services {
		if service == l {
			return p, true
		}
	}
	return 0, false
}

// answeredShare is how much of what a signature matches goes to services that answer what they get now, as far as that is known: the
// answers of each service are shared out evenly among what comes to it beside the usual.
func (t *traffic) answeredShare(of *suggest.Signature, now time.Time) float64 {
	if t.blind(now) {
		return 1
	}
	answered := map[*load]float64{}
	all, got := 0.0, 0.0
	list := t.window.since(now.Add(-searchSpan))
	for i := range list {
		s := &list[i]
		if !s.passed || !of.Has(&s.Sample) {
			continue
		}
		if _, ok := answered[s.place]; !ok {
			answered[s.place] = 0
			if f := t.facts(s.place, now); f.Answered != nil {
				answered[s.place] = *f.Answered
			}
		}
		all += s.packets
		got += s.packets * answered[s.place]
	}
	return got / max(1, all)
}
