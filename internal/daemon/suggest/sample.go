// SPDX-License-Identifier: Apache-2.0

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

// Sample is a sampled packet with its decoded content. The packet may be truncated.
type Sample struct {
	sample.Sample
	packet.Packet
	seen int    // number of captured bytes of L4
	name string // the name in a DNS query
}

const (
	maxFrame  = 65535 + 64 // bytes of the longest frame that is decoded: a datagram with its headers
	keptFrame = 1280       // bytes of a frame that are kept; a policy can test at most the first 1,040 bytes of a payload
)

// NewSample decodes the frame of a sample. It replaces bytes that were not captured by zeros, so that a truncated frame does not look malformed. The
// result has a copy of the first keptFrame bytes of the frame.
func NewSample(from sample.Sample) Sample {
	frame, captured := from.Frame, len(from.Frame)
	if length := min(from.Length, maxFrame); captured < length {
		frame = append(make([]byte, 0, length), frame...)[:length]
	}
	frame = frame[:len(frame):len(frame)]
	s := Sample{Sample: from, Packet: packet.Decode(frame)}
	if isQuery(&s) {
		s.name = s.Query.Name()
	}
	before := len(frame) - cap(s.L4) // the capacity of each part reaches to the end of the frame
	kept := bytes.Clone(frame[:min(len(frame), keptFrame)])
	if s.Frame = kept; captured < len(kept) {
		s.Frame = bytes.Clone(from.Frame) // without the zeros, for samples that are kept without their decoded content
	}
	s.L4, s.Payload, s.Query = moved(s.L4, frame, kept), moved(s.Payload, frame, kept), s.Query.Clone()
	s.seen = max(0, min(len(s.L4), captured-before))
	return s
}

// Sender returns the source address, or its /64 for IPv6.
func (s *Sample) Sender() netip.Addr { return HostOf(s.Src) }

// HostOf returns the address that identifies a host: the address itself, or its /64 for IPv6.
func HostOf(a netip.Addr) netip.Addr {
	if a.Is4() {
		return a
	}
	p, _ := a.Prefix(64)
	return p.Addr()
}

// moved returns the part of a copy that lies at the same offset as a part of the original frame. kept is the copy of the frame's first bytes. nil
// stays nil.
func moved(part, frame, kept []byte) []byte {
	if part == nil {
		return nil
	}
	at := min(len(frame)-cap(part), len(kept))
	return kept[at:min(at+len(part), len(kept))]
}

// ReadFile reads packets of a file. If the file has more packets than `most`, ReadFile chooses some at random, always with the same result. It reads
// only the first span of time, or everything if span is 0. It returns the time that the packets span, and the number of IP packets.
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
			continue // packets of several devices may be out of order
		}
		if p.Time.After(last) {
			last = p.Time
		}
		s := NewSample(p)
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
