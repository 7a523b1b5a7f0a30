// SPDX-License-Identifier: Apache-2.0

// This file makes a node apply the policies of its fleet. In: orders and files from hubs, which are accepted only with a signature of the key. Out: a
// running policy, either the ordered one or the previous one.
//
// Read rollout.go first: Run follows the orders, one at a time. trial.go applies a version and decides whether to keep it. kept.go has the state that a
// node remembers over restarts. host.go applies policies on the host, with the same transaction as `floodwall apply --confirm`.

package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/floodwall/floodwall/internal/fleet/policies"
	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/internal/os/periodic"
)

// Hub is a node's connection to its hubs.
type Hub interface {
	Order(ctx context.Context) ([]byte, error)
	Part(ctx context.Context, sum string, part int) ([]byte, error)
	Orders(take func(order []byte))
	Tell(s wire.PolicyState)
	Reach(ctx context.Context) error // returns when a hub is reachable now; makes a new connection if necessary
}

// Follower applies the policies that the holder of a key orders.
type Follower struct {
	Node string // the name of this node
	Key  string // the public key
	Dir  string // the directory of the versions; only its owner may write there
	Hub  Hub
	Host Host
	Log  func(text string, err error)

	kept kept
	why  string // the reason why the ordered policy does not run here
	told string // the last error that was logged

	latest atomic.Pointer[[]byte] // the latest published order that is not handled yet; at most one order a second is handled

	lookedAt time.Time // when the files of a version were last read
	lookedOf uint64
	found    error
}

// How often a node asks for the order, tells the hubs its policy, and tries again after a failure.
const (
	askEvery   = 30 * time.Second
	tellEvery  = 10 * time.Second
	retryEvery = 5 * time.Second
)

// Run follows the orders until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	f.Hub.Orders(func(order []byte) { f.latest.Store(&order) })
	if !f.remember(ctx) {
		return
	}
	var latest []byte
	var asked, told time.Time
	periodic.RunPaced(ctx, func() time.Duration {
		wait := time.Second
		if time.Since(asked) > askEvery {
			asked = time.Now()
			if order, err := f.Hub.Order(ctx); err != nil {
				asked = asked.Add(retryEvery - askEvery)
			} else if len(order) > 0 {
				latest = order
			}
		}
		if order := f.latest.Swap(nil); order != nil {
			latest = *order
		}
		if latest != nil || f.kept.Phase == wire.Trial {
			again := f.follow(ctx, latest)
			if told = (time.Time{}); again {
				wait = retryEvery
			} else {
				latest = nil
			}
		}
		if time.Since(told) > tellEvery {
			told = time.Now()
			f.tell(ctx)
		}
		return wait
	})
}

// remember reads the stored state of this node. While the file is damaged remember waits: a node without its state would take an old version for a
// new one.
func (f *Follower) remember(ctx context.Context) bool {
	for ctx.Err() == nil {
		var err error
		if f.kept, err = readKept(f.Dir); err == nil {
			f.why = f.kept.Problem
			return true
		}
		f.warn(err)
		f.tell(ctx)
		periodic.Sleep(ctx, retryEvery)
	}
	return false
}

// warn logs an error, unless the last logged error was the same.
func (f *Follower) warn(err error) {
	f.why = err.Error()
	if f.told != f.why {
		f.told = f.why
		f.Log("", fmt.Errorf("policy of the fleet: %w", err))
	}
}

// follow handles an order. again is true when the caller must try it again.
func (f *Follower) follow(ctx context.Context, order []byte) (again bool) {
	if f.kept.Phase == wire.Trial { // the daemon was restarted during the trial
		f.resume(ctx)
		return order != nil && ctx.Err() == nil
	}
	m, err := policies.Open(order, f.Key)
	if err != nil {
		f.warn(err)
		return false
	}
	k := &f.kept
	switch {
	case m.Version < k.Seen:
		f.warn(fmt.Errorf("a hub offers version %d, and this node has seen version %d: it is old, or the hub hides the new one", m.Version, k.Seen))
		return false
	case m.Version == k.Seen && k.Content != m.Content():
		f.warn(fmt.Errorf("version %d has two contents: the holder of the key has signed both", m.Version))
		return false
	case m.Version == k.Seen && k.Phase != wire.Waiting && k.Phase != wire.Loading:
		f.why = k.Problem
		return false // handled before
	}
	next := kept{Seen: m.Version, Content: m.Content(), Runs: k.Runs, RunsContent: k.RunsContent, Phase: wire.Waiting}
	if !m.For(f.Node) {
		if m.Version == k.Seen {
			return false // recorded before
		}
		return !f.keep(next)
	}
	if next.Phase = wire.Loading; m.Version == k.Seen {
		next.Tries = k.Tries
	}
	if !f.keep(next) {
		return true
	}
	f.tell(ctx)
	return f.take(ctx, m)
}

// keep records the progress of this node. When that fails, the node does nothing: a node that forgets could take an old version.
func (f *Follower) keep(k kept) bool {
	if err := k.write(f.Dir); err != nil {
		f.warn(err)
		return false
	}
	f.kept, f.why, f.told = k, k.Problem, ""
	return true
}

// path returns the directory of a version.
func (f *Follower) path(version uint64) string {
	return filepath.Join(f.Dir, strconv.FormatUint(version, 10))
}

// policy returns the path of a version's policy file.
func (f *Follower) policy(version uint64) string {
	return filepath.Join(f.path(version), policies.Policy)
}

// load fetches the files of a version.
func (f *Follower) load(ctx context.Context, m *policies.Manifest) error {
	dir := f.path(m.Version)
	if content, err := policies.ContentOf(dir); err == nil && content == m.Content() {
		return nil // from an earlier attempt
	}
	if err := sweep(f.Dir, f.kept.Runs, m.Version); err != nil {
		return err
	}
	return policies.Write(dir, m, func(file policies.File) (b []byte, err error) {
		for part := range wire.Parts(file.Size) {
			text, err := f.part(ctx, file.Sum, part)
			if err != nil {
				return nil, err
			}
			if len(text) > wire.PartSize {
				return nil, fmt.Errorf("part %d has %d bytes", part, len(text))
			}
			b = append(b, text...)
		}
		return b, nil
	})
}

// part fetches a part of a file. It tries three times, because a hub limits the parts that a node gets in a second.
func (f *Follower) part(ctx context.Context, sum string, part int) (b []byte, err error) {
	for try := range 3 {
		if b, err = f.Hub.Part(ctx, sum, part); err == nil && len(b) > 0 {
			return b, nil
		}
		if err == nil {
			err = errors.New("the hub does not have it")
		}
		if !periodic.Sleep(ctx, time.Duration(try+1)*time.Second/2) {
			return nil, ctx.Err()
		}
	}
	return nil, err
}

// tell tells the hubs which policy runs on this node.
func (f *Follower) tell(ctx context.Context) {
	k := &f.kept
	s := wire.PolicyState{Version: k.Seen, Runs: k.Runs, Phase: k.Phase, Problem: f.why}
	now, err := f.Host.Running(ctx)
	switch {
	case err != nil:
		s.Drift = err.Error()
	default:
		s.Healthy = now.Healthy
		if s.Drift = f.drift(now); s.Drift == "" && k.Phase != wire.Trial {
			s.Content = k.RunsContent
		}
	}
	f.Hub.Tell(s)
}

// drift describes how the running policy differs from the policy that the fleet has ordered.
func (f *Follower) drift(now Running) string {
	k := &f.kept
	switch {
	case k.Runs == 0:
		return ""
	case k.Phase == wire.Trial:
		return ""
	case now.Policy == "":
		return "no policy runs"
	case now.Policy != f.policy(k.Runs):
		return "changed by hand: " + now.Policy + " runs"
	case now.Trial:
		return "changed by hand: a policy is on trial"
	}
	if changed := f.edited(); changed != nil {
		return "changed by hand: " + changed.Error()
	}
	return ""
}
