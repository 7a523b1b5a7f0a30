// This file hands the samples of the traffic, which XDP takes of all packets (`daemon: {sample: …}`), to all in the daemon who follow them.
// In: an instance. Out: to each follower, each sample with its verdict and its reason. Nobody who follows is waited for.

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

// lookEvery is how often the tap looks whether the policy that runs has samples taken, and how.
const lookEvery = 2 * time.Second

// tapWaiting is how many samples a follower may be behind.
const tapWaiting = 8192

// Tap reads the samples of one instance. There must be one reader: the daemon.
type Tap struct {
	in    control.Instance
	oneIn atomic.Uint32
	lost  atomic.Uint64 // samples that were too many for the program's rate, or for the ring

	mu        sync.Mutex
	followers map[*Follower]bool
}

// NewTap makes a Tap that reads nothing yet.
func NewTap(in control.Instance) *Tap { return &Tap{in: in, followers: map[*Follower]bool{}} }

// OneIn is the number of packets of which one is sampled; 0 while the policy that runs has none taken. A nil Tap has none.
func (t *Tap) OneIn() uint32 {
	if t == nil {
		return 0
	}
	return t.oneIn.Load()
}

// Run reads samples until ctx ends. While no policy runs that has samples taken in XDP, it waits for one. report is told of an error once, until
// another one comes or samples are read again.
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

// read reads samples of what runs, until the policy wants others, or an error ends it.
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
		p, err := c.Read(limited)
		cancel()
		switch {
		case err == nil:
			adapts.count(p.Verdict == Leaves || p.Verdict == Forwarded)
			t.hand(p)
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

// hand gives a sample to all who follow.
func (t *Tap) hand(p Packet) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.followers) == 0 {
		return
	}
	s := Sample{
		Device: p.Device, Length: p.Length, Frame: bytes.Clone(p.Frame), Verdict: p.Verdict, Reason: p.Rule, Time: p.Time,
		Stands: (1 << 32) / float64(max(1, p.Share)),
	}
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

// Follower gets all samples from Follow on.
type Follower struct {
	tap     *Tap
	samples chan Sample
	leaving bool          // it gets those that leave, too
	missed  atomic.Uint64 // it was too far behind
	lost    uint64        // of the tap, when it began
}

// Follow begins to follow what arrives.
func (t *Tap) Follow() *Follower { return t.follow(false) }

// FollowBoth begins to follow what arrives, and what leaves where the policy has that sampled: it has the verdict Leaves or Forwarded.
func (t *Tap) FollowBoth() *Follower { return t.follow(true) }

func (t *Tap) follow(leaving bool) *Follower {
	f := &Follower{tap: t, samples: make(chan Sample, tapWaiting), lost: t.lost.Load(), leaving: leaving}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.followers[f] = true
	return f
}

// Read waits for a sample. Its frame is the caller's.
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

// OneIn is the number of packets of which one is sampled.
func (f *Follower) OneIn() uint32 { return max(1, f.tap.OneIn()) }

// SetShare does nothing: the policy says how many samples are taken.
func (f *Follower) SetShare(uint32) error { return nil }

// Lost counts the samples that were drawn since Follow and did not reach the follower. Those that the program lost come in steps of seconds.
func (f *Follower) Lost() (uint64, error) { return f.tap.lost.Load() - f.lost + f.missed.Load(), nil }

// Close ends the following.
func (f *Follower) Close() error {
	f.tap.mu.Lock()
	defer f.tap.mu.Unlock()
	delete(f.tap.followers, f)
	return nil
}
