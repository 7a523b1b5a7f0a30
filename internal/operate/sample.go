package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/floodwall/floodwall/internal/packet"
	"github.com/floodwall/floodwall/internal/sampling"
	"github.com/floodwall/floodwall/internal/suggest"
)

// sampleFor is how long samples are taken when nobody says.
const sampleFor = 5 * time.Second

// probeFor is how long packets are counted before samples are drawn, to find how many there are.
const probeFor = 200 * time.Millisecond

// sample takes samples of what comes to devices, about so many at most.
func (s *Source) sample(ctx context.Context, devices []string, most int, span time.Duration) error {
	if span == 0 {
		span = sampleFor
	}
	r, err := sampling.Open(devices, 1)
	if err != nil {
		return err
	}
	begin := time.Now()
	err = draw(ctx, r, most, span, func(p sampling.Sample) {
		sample := suggest.NewSample(p.Frame, p.Length)
		if sample.Kind == packet.IP && len(s.samples) < most {
			s.samples = append(s.samples, sample)
		}
	})
	lost, lostErr := r.Lost()
	if err := errors.Join(err, lostErr, r.Close()); err != nil {
		return err
	}
	s.Devices, s.Seconds, s.Looked, s.Lost = devices, time.Since(begin).Seconds(), len(s.samples), int(lost)
	s.Packets = s.Looked * int(r.OneIn())
	if s.Looked == 0 {
		return &NoRule{fmt.Sprintf("no IP packet came past XDP in %.1f s", s.Seconds), "`floodwall status` counts what the policy drops"}
	}
	return nil
}

// draw hands out samples of the packets that come in a time, about most of them when there are more.
func draw(ctx context.Context, r *sampling.Reader, most int, span time.Duration, add func(sampling.Sample)) error {
	probed, err := take(ctx, r, min(probeFor, span/2), func(sampling.Sample) {})
	if err != nil {
		return err
	}
	lost, err := r.Lost()
	if err != nil {
		return err
	}
	expected := float64(uint64(probed)+lost) * float64(span) / float64(min(probeFor, span/2))
	if err := r.SetShare(uint32(expected/float64(most)) + 1); err != nil {
		return err
	}
	_, err = take(ctx, r, span, add)
	return err
}

// take hands out all samples that come in a time.
func take(ctx context.Context, r *sampling.Reader, span time.Duration, add func(sampling.Sample)) (n int, err error) {
	limited, cancel := context.WithTimeout(ctx, span)
	defer cancel()
	for {
		p, err := r.Read(limited)
		switch {
		case ctx.Err() != nil:
			return n, ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			return n, nil
		case err != nil:
			return n, err
		}
		n++
		add(p)
	}
}
