// SPDX-License-Identifier: Apache-2.0

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
	Lasts       time.Duration // time in which all of the model is shown
	Streams     []Stream
	Recorded    []Frame // replayed in place of streams, repeatedly
	Rate        float64 // of Recorded, in frames per second
}

// Stream describes packets that are made by the same function.
type Stream struct {
	Class Class                         // of all packets; not used in attacks, which have a separate link
	Rate  func(t time.Duration) float64 // packets per second at a time since the start

	// New makes the stream's state from random numbers. It returns a function that sets the next packet, which is due at t. The same packet is used
	// again, so fields that the function does not set keep their values.
	New func(r *rand.Rand) func(p *Packet, t time.Duration)
}

// Frame is a frame, and its time since the first one.
type Frame struct {
	At    time.Duration
	Bytes []byte
}

// Classes returns the classes of the streams, each once.
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

// playing is the state of a stream that is played.
type playing struct {
	*Stream
	random *rand.Rand
	fill   func(p *Packet, t time.Duration)
	next   time.Duration // time at which the next packet is due
}

// Play starts a model.
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

// advance computes when the next packet is due. The time between two packets differs from the mean of the rate by up to a half.
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

// longest is longer than the time for which any model is played.
const longest = time.Hour

// Due returns the time since the start at which the next frame is due; false if there is none.
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

// first returns the stream whose packet is due first.
func (p *Player) first() (at int) {
	for i := range p.streams {
		if p.streams[i].next < p.streams[at].next {
			at = i
		}
	}
	return at
}

// Next returns the next frame, with these Ethernet addresses, and its class. The frame is valid until the next call.
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

// steady returns a constant rate.
func steady(rate float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return rate }
}
