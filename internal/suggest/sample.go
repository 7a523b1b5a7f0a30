package suggest

import (
	"io"
	"math/rand/v2"
	"time"

	"github.com/floodwall/floodwall/internal/capture"
	"github.com/floodwall/floodwall/internal/packet"
)

// Sample is a packet that was seen, maybe not to its end.
type Sample struct {
	packet.Packet
	seen int    // bytes of L4 that were captured
	name string // that a DNS query asks for
}

// maxFrame is the longest frame that is looked at: a datagram of 65,535 bytes with its headers.
const maxFrame = 65535 + 64

// NewSample decodes a frame of which length bytes were on the wire. What was not captured reads as zeros, so that a cut frame does not
// look like a damaged packet.
func NewSample(frame []byte, length int) Sample {
	captured := len(frame)
	if length = min(length, maxFrame); captured < length {
		frame = append(make([]byte, 0, length), frame...)[:length]
	}
	s := Sample{Packet: packet.Decode(frame)}
	if s.L4 != nil {
		s.seen = max(0, min(len(s.L4), captured-(cap(frame)-cap(s.L4))))
	}
	if isQuery(&s) {
		s.name = s.Query.Name()
	}
	return s
}

// ReadFile reads at most so many packets of a file, drawn at random when there are more, from the first so long a time; 0 reads all of
// it. The draw is the same each time. It returns the time that the packets span, and how many IP packets there were.
func ReadFile(name string, most int, span time.Duration) (samples []Sample, took time.Duration, packets int, err error) {
	r, err := capture.Open(name)
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
