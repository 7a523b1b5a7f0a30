// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// SampleFor is how long samples are taken by default.
const SampleFor = 5 * time.Second

// A probe runs before sampling. For a short time it counts one in probeShare packets, to estimate the packet rate.
const (
	probeFor   = 200 * time.Millisecond
	probeShare = 64
)

// sample takes samples of the traffic on devices and closes their reader. It adjusts the sampling rate so that there are about `most` samples.
func (s *Source) sample(ctx context.Context, r samples, devices []string, most int, span time.Duration) error {
	if span == 0 {
		span = SampleFor
	}
	begin, stands := time.Now(), 0.0
	err := draw(ctx, r, most, span, func(p sample.Sample) {
		sample := suggest.NewSample(p)
		switch {
		case sample.Kind != packet.IP || s.Looked == most:
			return
		case dropped(p.Verdict):
			s.dropped[p.Reason]++
		default:
			s.samples = append(s.samples, sample)
		}
		s.Looked++
		stands += p.Stands
	})
	lost, lostErr := r.Lost()
	if err := errors.Join(err, lostErr, r.Close()); err != nil {
		return err
	}
	s.Devices, s.Seconds, s.Lost = devices, time.Since(begin).Seconds(), int(lost)
	if s.Packets = int(stands); stands == 0 {
		s.Packets = s.Looked * int(r.OneIn())
	}
	if s.Looked == 0 {
		return noRule(fmt.Sprintf("no IP packet came past XDP in %.1f s", s.Seconds), "`floodwall status` counts what the policy drops")
	}
	return nil
}

// samples is a source of samples: a packet socket, the tap in the daemon, or in other processes a stream of the tap's samples.
type samples interface {
	Read(ctx context.Context) (sample.Sample, error)
	OneIn() uint32
	SetShare(oneIn uint32) error
	Lost() (uint64, error)
	Close() error
}

// openSamples follows the tap when the policy takes samples in XDP. Otherwise it opens packet sockets, which receive the packets that XDP passes.
func openSamples(t *sample.Tap, devices []string) (samples, error) {
	if t.OneIn() > 0 {
		return t.Follow(), nil
	}
	r, err := sample.OpenDevices(devices, probeShare)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// dropped reports whether XDP dropped a sample, or answered it. It does not count decisions of a protection.
func dropped(verdict string) bool {
	return verdict != "" && verdict != ir.Pass.String() && verdict != sample.Protected
}

// draw calls add with samples of the packets in a time span. If there are many packets, it draws about `most` samples.
func draw(ctx context.Context, r samples, most int, span time.Duration, add func(sample.Sample)) error {
	if err := probe(ctx, r, most, span); err != nil {
		return err
	}
	_, err := take(ctx, r, span, add)
	return err
}

// probe sets the sampling rate of a new reader, so that about `most` samples are taken in the time span.
func probe(ctx context.Context, r samples, most int, span time.Duration) error {
	switch r.(type) {
	case *sample.Follower, *sample.Stream: // the policy sets the sampling rate of these readers
		return nil
	}
	n, err := take(ctx, r, probeFor, func(sample.Sample) {})
	if err != nil {
		return err
	}
	lost, err := r.Lost()
	if err != nil {
		return err
	}
	expected := float64(uint64(n)+lost) * float64(r.OneIn()) * float64(span) / float64(probeFor)
	return r.SetShare(shareFor(expected, most))
}

// shareFor returns n so that sampling one in n packets gives about `most` samples of this many packets.
func shareFor(packets float64, most int) uint32 {
	return uint32(min(math.MaxUint32/2, packets/float64(most))) + 1
}

// take calls add with all samples in a time span.
func take(ctx context.Context, r samples, span time.Duration, add func(sample.Sample)) (n int, err error) {
	limited, cancel := context.WithTimeout(ctx, span)
	defer cancel()
	for {
		p, err := r.Read(limited)
		switch {
		case ctx.Err() != nil:
			return n, ctx.Err()
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, err
		}
		n++
		add(p)
	}
}
