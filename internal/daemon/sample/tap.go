// SPDX-License-Identifier: Apache-2.0

// This file distributes samples of the traffic to all followers in the daemon. XDP takes the samples from all packets (`daemon: {sample: …}`). In: an
// instance. Out: each sample with its verdict and its reason, to each follower. The tap never waits for a follower.

package sample

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/os/periodic"
)

// lookEvery is how often the tap checks whether and how the running policy samples.
const lookEvery = 2 * time.Second

// tapWaiting is how many samples a follower may lag behind.
const tapWaiting = 8192

// Tap reads the samples of an instance. Only one process may read them: the daemon.
type Tap struct {
	in    control.Instance
	oneIn atomic.Uint32
	lost  atomic.Uint64 // number of samples that exceeded the program's rate, or for which the ring had no space

	mu        sync.Mutex
	followers map[*Follower]bool
}

// NewTap makes a Tap that reads nothing yet.
func NewTap(in control.Instance) *Tap { return &Tap{in: in, followers: map[*Follower]bool{}} }

// OneIn returns n if one in n packets is sampled, and 0 while the running policy does not sample. It returns 0 for a nil Tap.
func (t *Tap) OneIn() uint32 {
	if t == nil {
		return 0
	}
	return t.oneIn.Load()
}

// Run reads samples until ctx ends. While the running policy does not sample in XDP, Run waits. It calls report once with an error, and with the same
// error again only after samples were read or another error came.
func (t *Tap) Run(ctx context.Context, report func(error)) {
	said := ""
	periodic.Run(ctx, lookEvery, func() {
		began := time.Now()
		err := t.read(ctx)
		t.oneIn.Store(0)
		switch {
		case err == nil, errors.Is(err, datapath.ErrNotLoaded), errors.Is(err, datapath.ErrNoTraffic), errors.Is(err, datapath.ErrLocked), ctx.Err() != nil:
			said = ""
		case err.Error() != said || time.Since(began) > lookEvery:
			said = err.Error()
			report(fmt.Errorf("no samples of the traffic are read: %w", err))
		}
	})
}

// read reads samples of the running policy, until the policy's settings change or an error occurs.
func (t *Tap) read(ctx context.Context) error {
	settings, err := t.in.DaemonSettings(ctx)
	if err != nil || settings.Sample == 0 {
		return err
	}
	c, err := Traffic(ctx, t.in)
	if err != nil {
		return err
	}
	defer c.Close()
	t.oneIn.Store(settings.Sample)
	before := t.lost.Load()
	adapts := &adaption{on: settings.Adapts, since: time.Now()}
	for looked := time.Now(); ; {
		limited, cancel := context.WithTimeout(ctx, adaptEvery)
		s, err := c.Read(limited)
		cancel()
		switch {
		case err == nil:
			adapts.count(s.Verdict == Leaves || s.Verdict == Forwarded)
			t.hand(s)
		case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			return err
		}
		if oneIn := adapts.adapt(c, time.Now()); oneIn > 0 {
			t.oneIn.Store(oneIn)
		}
		if time.Since(looked) < lookEvery {
			continue
		}
		looked = time.Now()
		if lost, err := c.Lost(); err == nil {
			t.lost.Store(before + lost)
		}
		now, err := t.in.DaemonSettings(ctx)
		if err != nil || now.Sample != settings.Sample || now.Adapts != settings.Adapts {
			return err
		}
	}
}

// hand gives a sample to all followers.
func (t *Tap) hand(s Sample) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.followers) == 0 {
		return
	}
	s.Frame = bytes.Clone(s.Frame)
	for f := range t.followers {
		if (s.Verdict == Leaves || s.Verdict == Forwarded) && !f.leaving {
			continue
		}
		select {
		case f.samples <- s:
		default:
			f.missed.Add(1)
		}
	}
}

// Follower receives all samples that are taken after Follow.
type Follower struct {
	tap     *Tap
	samples chan Sample
	leaving bool          // it also receives samples of outgoing packets
	missed  atomic.Uint64 // number of samples that this follower lost because it lagged too far behind
	lost    uint64        // the value of the tap's `lost` when the follower began
}

// Follow starts to follow arriving packets.
func (t *Tap) Follow() *Follower { return t.follow(false) }

// FollowBoth starts to follow incoming packets, and also outgoing ones if the policy samples them. Outgoing packets have the verdict Leaves or
// Forwarded.
func (t *Tap) FollowBoth() *Follower { return t.follow(true) }

func (t *Tap) follow(leaving bool) *Follower {
	f := &Follower{tap: t, samples: make(chan Sample, tapWaiting), lost: t.lost.Load(), leaving: leaving}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.followers[f] = true
	return f
}

// Read waits for a sample. The caller owns its frame.
func (f *Follower) Read(ctx context.Context) (Sample, error) {
	if ctx.Err() != nil {
		return Sample{}, ctx.Err()
	}
	select {
	case s := <-f.samples:
		return s, nil
	case <-ctx.Done():
		return Sample{}, ctx.Err()
	}
}

// OneIn returns n if one in n packets is sampled.
func (f *Follower) OneIn() uint32 { return max(1, f.tap.OneIn()) }

// SetShare does nothing: the policy sets the sampling rate.
func (f *Follower) SetShare(uint32) error { return nil }

// Lost returns the number of samples since Follow that did not reach the follower. The program's losses are read only every few seconds.
func (f *Follower) Lost() (uint64, error) { return f.tap.lost.Load() - f.lost + f.missed.Load(), nil }

// Close stops following.
func (f *Follower) Close() error {
	f.tap.mu.Lock()
	defer f.tap.mu.Unlock()
	delete(f.tap.followers, f)
	return nil
}
