// SPDX-License-Identifier: Apache-2.0

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

// Limits for services that are recognized by their traffic.
const (
	mostServices = 64
	newServices  = 64    // number of ports that are counted at the same time, to find services among them
	serviceShare = 0.005 // a port counts as a service if at least this share of the quiet outgoing packets is from the port
	serviceLeast = 2.0   // and at least this many packets a second
	findServices = 5 * time.Second
	mostFamiliar = 1000  // samples of proved senders, against which rules are tested in addition to the baseline
	firstClient  = 32768 // ports from here on are for clients (net.ipv4.ip_local_port_range)
)

// port is the port of a service: a value of packet.DPort.
type port uint32

func (p port) String() string {
	if p == echoPort {
		return "echo requests"
	}
	return suggest.ValueText(packet.DPort, uint32(p))
}

// traffic is the sampled traffic of this host: the rates of each service, in the last seconds and in quiet times, and the senders that are no
// strangers.
type traffic struct {
	total    *load
	other    *load // packets to no known service
	services map[port]*load

	leaving *sample.Counter[port] // outgoing packets of quiet times, by source port
	found   time.Time             // when services were last discovered
	weight  float64               // number of packets that the samples in `leaving` stand for

	conversations conversations
	handshakes    handshakes
	questions     questions
	openings      openings
	sent          map[*load]*sending // samples of each load by sender, as of sentAt
	sentAt        time.Time
	sockets       sockets
	window        window
	known         map[netip.Addr]bool // senders of the baseline
	egress        bool                // the program at egress samples outgoing packets; if false, `saw` shows whether outgoing packets are sampled
	saw           time.Time           // time of the last sample that left this host
	forwarded     time.Time           // time of the last sample that was forwarded between devices of the policy
}

func newTraffic(least uint64, quiet time.Duration) *traffic {
	named := func(name string) *load { return newLoad(name, least, quiet) }
	return &traffic{total: named("this host"), other: named("no known service"), services: map[port]*load{}, leaving: sample.NewCounter[port](newServices)}
}

func newLoad(name string, least uint64, quiet time.Duration) *load {
	return &load{name: name, rate: rate{least: float64(least), quiet: quiet}}
}

// set changes the limits of all loads from now on.
func (t *traffic) set(least uint64, quiet time.Duration) {
	for _, l := range t.loads() {
		l.rate.least, l.rate.quiet = float64(least), quiet
	}
}

// loads returns all loads: first the loads of services, in the order of their ports.
func (t *traffic) loads() (list []*load) {
	for _, p := range t.ports() {
		list = append(list, t.services[p])
	}
	return append(list, t.other, t.total)
}

// ports returns the ports of the services.
func (t *traffic) ports() (list []port) {
	for p := range t.services {
		list = append(list, p)
	}
	slices.Sort(list)
	return list
}

// place returns the load of the service that a packet goes to, or `other`.
func (t *traffic) place(s *suggest.Sample) *load {
	if l := t.services[port(s.Value[packet.DPort])]; l != nil && s.Value[packet.Fragment] != packet.FragmentLater {
		return l
	}
	return t.other
}

// sample processes a sample. For an incoming packet it returns the parsed sample, which is valid until the next call. It returns nil for an outgoing
// packet, and for a packet that is not IP.
func (t *traffic) sample(p sample.Sample, oneIn uint32) *seen {
	s := suggest.NewSample(p)
	if s.Kind != packet.IP {
		return nil
	}
	if s.Stands == 0 {
		s.Stands = float64(max(1, oneIn)) * float64(1+s.Joined)
	}
	switch s.Verdict {
	case sample.Forwarded: // the same packet was sampled on arrival, and the answers to it have the same form
		t.forwarded = s.Time
		return nil
	case sample.Leaves:
		t.leaves(&s)
		return nil
	}
	e := seen{Sample: s, place: t.place(&s), standing: t.standing(&s)}
	t.window.add(e)
	for _, l := range []*load{e.place, t.total} {
		l.arrives(s.Time, s.Stands, e.standing)
	}
	if e.standing <= asked && e.passed() && (s.Value[packet.Proto] == packet.ProtoUDP || isEcho(&s, false)) {
		if from := (end{s.Sender(), here(&s, false)}); !t.conversations.partner(from) {
			t.openings.arrives(from, s.Sample)
		}
	}
	if e.place != t.other && s.Reason != "" && e.place.name == port(s.Value[packet.DPort]).String() && e.passed() && s.Reason != "default" {
		e.place.name = s.Reason // the policy's service or rule that passes the packet
	}
	return &t.window.list[len(t.window.list)-1]
}

// blindFor is how long one sampled outgoing packet proves that outgoing packets are sampled. For the same time, one forwarded packet makes answers
// unreliable.
const blindFor = 10 * time.Minute

// blind reports whether the answers of this host cannot be observed.
func (t *traffic) blind(now time.Time) bool {
	seen := func(at time.Time) bool { return !at.IsZero() && now.Sub(at) < blindFor }
	return !t.egress && !seen(t.saw) || seen(t.forwarded)
}

// leaves processes an outgoing packet.
func (t *traffic) leaves(s *suggest.Sample) {
	packets, now := s.Stands, s.Time
	t.saw = now
	t.handshakes.leaves(s)
	from := here(s, true)
	to := end{suggest.HostOf(s.Dst), from}
	_, waits := t.openings.waiting.get(to)
	switch partner := t.conversations.partner(to); {
	case t.asks(s) && !waits && !partner:
		t.questions.leaves(s)
	case from == echoPort: // the kernel answers every echo request: an answer proves nothing before the sender continues
		t.begins(to, partner, now, packets)
		return
	case isAnswer(s):
		t.begins(to, partner, now, packets)
	case partner && s.Value[packet.Proto] == packet.ProtoTCP && s.Value[packet.Flags]&rst == 0: // a SYN-ACK to a sender that completed an earlier handshake
		t.conversations.answers(to, now, packets)
	default:
		return
	}
	l := t.services[from]
	if l == nil {
		l = t.other
		t.leaving.Add(from)
		t.weight += packets
	}
	l.leaves(now, packets)
	t.total.leaves(now, packets)
}

// begins records an answer. A conversation may begin with it.
func (t *traffic) begins(to end, partner bool, now time.Time, packets float64) {
	if !partner {
		t.openings.answers(to, now)
	}
	t.conversations.answers(to, now, packets)
}

// standing returns how well the sender of an incoming packet is known.
func (t *traffic) standing(s *suggest.Sample) standing {
	from := s.Sender()
	to := end{from, here(s, false)}
	if t.handshakes.completed(s) {
		t.conversations.completes(to, s.Time)
	}
	answered, back := t.conversations.arrives(to, s.Time, s.Stands)
	switch {
	case t.sockets.has(s):
		return open
	case back && s.Value[packet.Proto] == packet.ProtoTCP:
		return proved
	case t.known[from]:
		return known
	case back:
		return returned
	case t.questions.answered(s):
		return replied
	case answered:
		return asked
	}
	return stranger
}

// discover searches for services in the outgoing packets. It runs at intervals, in a quiet second.
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
				t.other = newLoad(t.other.name, uint64(t.other.rate.least), t.other.rate.quiet) // until now, `other` has counted the packets of the new service
				t.services[c.Key] = newLoad(c.Key.String(), uint64(t.total.rate.least), t.total.rate.quiet)
			}
		}
	}
	t.leaving, t.weight, t.found = sample.NewCounter[port](newServices), 0, now
}

// mayAdd reports whether another service may be added. If there are too many, it removes a service that got no packets in most of the last minutes.
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

// isService reports whether a port can be a service's. On higher ports this host is a client.
func isService(p port) bool {
	number := p
	if p >= packet.PortUDP {
		number -= packet.PortUDP
	}
	return p < packet.PortNone && number > 0 && number < firstClient
}

// tick returns the loads that have risen. Before a load can be an attack, connections as young as its rise must be listed.
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
		if list, err := connections(); err == nil { // the code that needs the list for a rule reports the error
			if t.sockets.renew(list) {
				t.recognize(now)
			}
		}
	}
	return risen
}

// young reports whether a load is rising whose rise began after a time, or at most a tenth of a second before that time.
func (t *traffic) young(at time.Time) bool {
	return slices.ContainsFunc(t.loads(), func(l *load) bool { return l.high > 0 && l.began.Add(tenth).After(at) })
}

// recognize counts packets of the last tenths as known if their connection was listed later. It is needed because a list is some tenths old, and an
// upload may have started after the list.
func (t *traffic) recognize(now time.Time) {
	list := t.window.since(now.Add(-riseTenths * tenth))
	for i := range list {
		s := &list[i]
		if s.standing >= replied || !t.sockets.has(&s.Sample) {
			continue
		}
		s.standing = open
		for _, l := range []*load{s.place, t.total} {
			l.vouch(l.tenthOf(s.Time), s.Stands, open)
		}
	}
}

// second ends a second. all is the number of packets by the counters. It returns the loads whose state changes.
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
		} else if s := t.bySender(now)[l]; s != nil && l.rate.bound == 0 && l.rate.above == 0 {
			l.sends(s.each)
		}
	}
	return turns
}

// above reports whether any load is above its bound.
func (t *traffic) above() bool {
	return slices.ContainsFunc(t.loads(), func(l *load) bool { return l.rate.above > 0 })
}

// good returns samples that rules must not match: those of quiet times, and recent samples of proved senders.
func (t *traffic) good(quiet []suggest.Sample) []suggest.Sample {
	return slices.Concat(quiet, t.window.familiar(mostFamiliar))
}

// knows sets the known senders, which are the senders of the samples of quiet times.
func (t *traffic) knows(quiet []suggest.Sample) {
	t.known = make(map[netip.Addr]bool, len(quiet))
	for i := range quiet {
		t.known[quiet[i].Sender()] = true
	}
}

// portOf returns the port of a service; false when the load is not a service's.
func (t *traffic) portOf(l *load) (port, bool) {
	for p, service := range t.services {
		if service == l {
			return p, true
		}
	}
	return 0, false
}

// answeredShare estimates a share of the packets that a signature matches: those to services that answer now. It assumes that the answers of each
// service are spread evenly over the service's traffic above the usual rate.
func (t *traffic) answeredShare(of *suggest.Signature, now time.Time) float64 {
	if t.blind(now) {
		return 1
	}
	answered := map[*load]float64{}
	all, got := 0.0, 0.0
	list := t.window.since(now.Add(-searchSpan))
	for i := range list {
		s := &list[i]
		if !s.passed() || !of.Has(&s.Sample) {
			continue
		}
		if _, ok := answered[s.place]; !ok {
			answered[s.place] = 0
			if f := t.facts(s.place, now); f.Answered != nil {
				answered[s.place] = *f.Answered
			}
		}
		all += s.Stands
		got += s.Stands * answered[s.place]
	}
	return got / max(1, all)
}
