package traffic

import (
	"math/rand/v2"
	"net"
	"slices"
	"time"
)

// Model is traffic of one kind.
type Model struct {
	Name, Label string
	Honest      bool
	Lasts       time.Duration // that it takes to show all of it
	Streams     []Stream
	Recorded    []Frame // that is replayed in place of streams, over and over
	Rate        float64 // of Recorded, frames a second
}

// Stream is packets that are made in the same way.
type Stream struct {
	Class Class                         // of all packets; not used of attacks, which have a wire of their own
	Rate  func(t time.Duration) float64 // packets a second at a time since the beginning

	// New makes what the stream needs, from what is random. The function that it returns fills in the next packet, which is due at t.
	// It may leave what it does not set: a packet is reused.
	New func(r *rand.Rand) func(p *Packet, t time.Duration)
}

// Frame is a frame and when it came after the first one.
type Frame struct {
	At    time.Duration
	Bytes []byte
}

// Classes are those of the streams, each once.
func (m *Model) Classes() (list []Class) {
	for _, s := range m.Streams {
		if s.Class.Name != "" && !slices.Contains(list, s.Class) {
			list = append(list, s.Class)
		}
	}
	return list
}

// Player puts the frames of a model in order.
type Player struct {
	model   *Model
	streams []playing
	at      int // of Recorded
	packet  Packet
	frame   []byte
}

// playing is a stream that is played.
type playing struct {
	*Stream
	random *rand.Rand
	fill   func(p *Packet, t time.Duration)
	next   time.Duration // when a packet is due
}

// Play begins a model.
func (m *Model) Play(seed uint64) *Player {
	p := &Player{model: m}
	for i := range m.Streams {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		s := playing{Stream: &m.Streams[i], random: r}
		s.fill = s.New(r)
		s.advance()
		p.streams = append(p.streams, s)
	}
	return p
}

// step is a time in which a rate hardly changes.
const step = time.Millisecond

// advance finds when the next packet is due: the distance of two is that of the rate, half of it more or less.
func (s *playing) advance() {
	for left := 0.5 + s.random.Float64(); s.next < longest; s.next += step {
		rate := s.Rate(s.next)
		more := rate * step.Seconds()
		if more >= left {
			s.next += time.Duration(left / rate * float64(time.Second))
			return
		}
		left -= more
	}
}

// longest is longer than anything is played.
const longest = time.Hour

// Due is when the next frame is due, since the beginning; false when there is none.
func (p *Player) Due() (time.Duration, bool) {
	if p.model.Recorded != nil {
		return time.Duration(float64(p.at) / p.model.Rate * float64(time.Second)), true
	}
	if len(p.streams) == 0 {
		return 0, false
	}
	next := p.streams[p.first()].next
	return next, next < longest
}

// first is the stream whose packet is due first.
func (p *Player) first() (at int) {
	for i := range p.streams {
		if p.streams[i].next < p.streams[at].next {
			at = i
		}
	}
	return at
}

// Next is the next frame, for the Ethernet address to and from the other, and the class that it is of. The frame is good until the next call.
func (p *Player) Next(to, from net.HardwareAddr) ([]byte, *Class) {
	if list := p.model.Recorded; list != nil {
		p.frame = append(p.frame[:0], list[p.at%len(list)].Bytes...)
		copy(p.frame, to)
		copy(p.frame[6:], from)
		p.at++
		return p.frame, nil
	}
	s := &p.streams[p.first()]
	s.fill(&p.packet, s.next)
	s.advance()
	p.frame = p.packet.appendFrame(p.frame[:0], to, from)
	return p.frame, &s.Class
}

// steady is always the same rate.
func steady(rate float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return rate }
}
