package suggest

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Sample is a packet that was seen, maybe not to its end.
type Sample struct {
	packet.Packet
	seen int    // bytes of L4 that were captured
	name string // that a DNS query asks for
}

const (
	maxFrame  = 65535 + 64 // bytes of the longest frame that is looked at: a datagram with its headers
	keptFrame = 1280       // bytes that are kept of one: the language looks no further than 1,040 bytes into a payload
)

// NewSample decodes a frame of which length bytes were on the wire. What was not captured reads as zeros, so that a cut frame does not
// look like a damaged packet.
func NewSample(frame []byte, length int) Sample {
	captured := len(frame)
	if length = min(length, maxFrame); captured < length {
		frame = append(make([]byte, 0, length), frame...)[:length]
	}
	frame = frame[:len(frame):len(frame)]
	s := Sample{Packet: packet.Decode(frame)}
	if isQuery(&s) {
		s.name = s.Query.Name()
	}
	before := len(frame) - cap(s.L4) // the capacity of each part goes on to the end of the frame
	kept := bytes.Clone(frame[:min(len(frame), keptFrame)])
	s.L4, s.Payload, s.Query = moved(s.L4, frame, kept), moved(s.Payload, frame, kept), s.Query.Clone()
	s.seen = max(0, min(len(s.L4), captured-before))
	return s
}

// Sender is the address that the packet is from: a client of IPv6 is a /64.
func (s *Sample) Sender() netip.Addr { return HostOf(s.Src) }

// HostOf is the address that stands for the host that has one: a client of IPv6 is a /64.
func HostOf(a netip.Addr) netip.Addr {
	if a.Is4() {
		return a
	}
	p, _ := a.Prefix(64)
	return p.Addr()
}

// moved is a part of a frame in a copy of the frame's first bytes. nil stays nil.
func moved(part, frame, kept []byte) []byte {
	if part == nil {
		return nil
	}
	at := min(len(frame)-cap(part), len(kept))
	return kept[at:min(at+len(part), len(kept))]
}

// ReadFile reads at most so many packets of a file, drawn at random when there are more, from the first so long a time; 0 reads all of
// it. The draw is the same each time. It returns the time that the packets span, and how many IP packets there were.
func ReadFile(name string, most int, span time.Duration) (samples []Sample, took time.Duration, packets int, err error) {
	r, err := sample.OpenFile(name)
	if err != nil {
		return nil, 0, 0, err
	}
	defer r.Close()
	draw := rand.New(rand.NewPCG(1, 2))
	var first, last time.Time
	for {
		p, err := r.Read()
		if err == io.EOF {
			return samples, last.Sub(first), packets, nil
		}
		if err != nil {
			return nil, 0, 0, err
		}
		if first.IsZero() {
			first, last = p.Time, p.Time
		}
		if span > 0 && p.Time.Sub(first) > span {
			continue // packets of several devices are not in order
		}
		if p.Time.After(last) {
			last = p.Time
		}
		s := NewSample(p.Frame, p.Length)
		if s.Kind != packet.IP {
			continue
		}
		if packets++; len(samples) < most {
			samples = append(samples, s)
		} else if at := draw.IntN(packets); at < most { // algorithm R (Vitter, "Random Sampling with a Reservoir", 1985)
			samples[at] = s
		}
	}
}
