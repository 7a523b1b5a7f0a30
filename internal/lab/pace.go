package lab

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"
)

const (
	// testLiveFrames has BPF_PROG_TEST_RUN send what the program redirects (linux/bpf.h,
	// BPF_F_TEST_XDP_LIVE_FRAMES, since 5.18).
	testLiveFrames = 1 << 1

	// chunk is how often one system call runs the generator at full speed, some milliseconds.
	chunk = 1 << 18

	// chunkTime is how long a system call of a paced generator lasts.
	chunkTime = 20 * time.Millisecond

	// batch is how many pages a call works with, and how many packets it handles before it looks up. The most that the
	// kernel allows (net/bpf/test_run.c, TEST_XDP_MAX_BATCH) is a tenth faster than its default.
	batch = 256

	// SmoothRate is the rate from which the generator itself waits between packets: it spins, which gives even
	// spacing. Below it, a sleeping thread sends small bursts, so that a slow source leaves its CPU to others. Only a
	// source of at least this rate can be a process of its own (SourceOptions.Apart).
	SmoothRate = 100_000

	// tick is the time between two bursts.
	tick = time.Millisecond

	// maxBurst is the most packets in a burst. A veth queue holds 256 (kernel drivers/net/veth.c, VETH_RING_SIZE).
	maxBurst = 128

	// maxLag is by how much a source that was held up may be late before it gives up the packets in question.
	maxLag = 100 * time.Millisecond
)

// smooth reports whether the generator spaces the packets.
func (s *Source) smooth() bool { return s.options.Rate >= SmoothRate }

// catchUp is how many times its rate a late source sends at most, unless its options say.
const catchUp = 4

// How long the generator waits in one run for a packet to be due, and for a burst: what the source waits for, it waits for
// as often as a batch has packets.
const (
	packetPatience = 10 * time.Microsecond
	burstPatience  = time.Microsecond
)

// pace sets the spacing of bursts, in units of 1/256 ns.
func (s *Source) pace(r *labRecipe) {
	if !s.smooth() {
		return
	}
	burst, patience := cmp.Or(s.options.Burst, 1), packetPatience
	if burst > 1 {
		patience = burstPatience
	}
	r.Burst, r.Patience = uint64(burst), 256*uint64(patience)
	r.Interval = uint64(math.Round(256 * 1e9 * float64(burst) / s.options.Rate))
	r.Lag = 256 * uint64(maxLag)
	r.Gap = uint64(float64(r.Interval) / cmp.Or(s.options.CatchUp, catchUp))
}

// send runs the generator until the number of packets sent reaches limit or ctx ends.
func (s *Source) send(ctx context.Context, sent, limit uint64) error {
	if s.options.Rate > 0 && !s.smooth() {
		return s.sendBursts(ctx, sent, limit)
	}
	if err := s.generator.Limit.Set(limit); err != nil {
		return fmt.Errorf("limit: %w", err)
	}
	// The end of ctx takes effect at once: the rest of the running chunk becomes empty runs.
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = s.generator.Limit.Set(uint64(0)) // as above
		close(stopped)
	})
	defer func() {
		if !stop() {
			<-stopped
		}
	}()
	if err := s.startClock(); err != nil {
		return err
	}
	for ctx.Err() == nil && s.Sent() < limit {
		repeat := min(s.chunk(), limit-s.Sent())
		if err := s.sendings(repeat).run(s.generator.Program); err != nil {
			return err
		}
	}
	return nil
}

// chunk is how often to run the generator in one system call. A paced one sends one packet in most of its runs, unless it
// waits for bursts.
func (s *Source) chunk() uint64 {
	if s.smooth() && s.options.Burst <= 1 {
		return uint64(min(s.options.Rate*chunkTime.Seconds(), chunk))
	}
	return chunk
}

// startClock has the first packet be due now.
func (s *Source) startClock() error {
	t, err := now()
	if err != nil {
		return err
	}
	return s.generator.NextDue.Set(uint64(t) << 8)
}

// sendBursts sends what is due at every tick. What is late is caught up with, as far as maxLag allows.
func (s *Source) sendBursts(ctx context.Context, sent, limit uint64) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	most := max(1, s.options.Rate*maxLag.Seconds())
	last, owed := time.Now(), 1.0
	for sent < limit {
		if n := min(uint64(owed), limit-sent, maxBurst); n > 0 {
			if err := s.generator.Limit.Set(sent + n); err != nil {
				return fmt.Errorf("limit: %w", err)
			}
			if err := s.sendings(n).run(s.generator.Program); err != nil {
				return err
			}
			sent += n
			owed -= float64(n)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now := time.Now()
		owed = min(owed+now.Sub(last).Seconds()*s.options.Rate, most)
		last = now
	}
	return nil
}
