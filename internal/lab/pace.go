// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"
)

const (
	// testLiveFrames makes BPF_PROG_TEST_RUN send the frames that the program redirects (linux/bpf.h, BPF_F_TEST_XDP_LIVE_FRAMES, since 5.18).
	testLiveFrames = 1 << 1

	// chunk is the number of runs of the generator in one system call at full speed. They take some milliseconds.
	chunk = 1 << 18

	// chunkTime is how long a system call of a paced generator lasts.
	chunkTime = 20 * time.Millisecond

	// batch is the number of pages of a call, and the number of packets that it handles before it checks for other work. The kernel's maximum
	// (net/bpf/test_run.c, TEST_XDP_MAX_BATCH) is a tenth faster than its default.
	batch = 256

	// SmoothRate is the rate above which the generator itself waits between packets. It spins, which gives even spacing. Below this rate, a sleeping
	// thread sends small bursts, so a slow source leaves its CPU to others. Only a source of at least this rate can be a separate process
	// (SourceOptions.Apart).
	SmoothRate = 100_000

	// tick is the time between two bursts.
	tick = time.Millisecond

	// maxBurst is the largest number of packets in a burst. A veth queue holds 256 (kernel drivers/net/veth.c, VETH_RING_SIZE).
	maxBurst = 128

	// maxLag is the longest delay of a source that was stopped for a time. Packets that are later are not sent.
	maxLag = 100 * time.Millisecond
)

// smooth reports whether the generator itself spaces the packets.
func (s *Source) smooth() bool { return s.options.Rate >= SmoothRate }

// catchUp is the highest rate of a late source as a multiple of its rate, unless its options have another one.
const catchUp = 4

// The longest waits of the generator in one run: for a packet to be due, and for a burst. The waits of a batch add up, one for each packet.
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
	// The end of ctx has an effect immediately: the remaining runs of the chunk send nothing.
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

// chunk returns the number of runs of the generator in one system call. A paced generator sends one packet in most of its runs, unless it waits for
// bursts.
func (s *Source) chunk() uint64 {
	if s.smooth() && s.options.Burst <= 1 {
		return uint64(min(s.options.Rate*chunkTime.Seconds(), chunk))
	}
	return chunk
}

// startClock makes the first packet due now.
func (s *Source) startClock() error {
	t, err := now()
	if err != nil {
		return err
	}
	return s.generator.NextDue.Set(uint64(t) << 8)
}

// sendBursts sends the packets that are due at every tick. It catches up on late packets, within maxLag.
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
