// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/floodwall/floodwall/internal/fleet/policies"
	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/policy"
)

// margin is the time between a node's decision and the end of the trial. At the end the kernel itself returns to the previous policy.
const margin = 2 * time.Second

// maxTries is how often a version is tried when the daemon ends unexpectedly in each trial.
const maxTries = 2

// take loads, checks and tries a version. again is true when the caller must try it again.
func (f *Follower) take(ctx context.Context, m *policies.Manifest) (again bool) {
	if err := f.load(ctx, m); err != nil {
		f.warn(fmt.Errorf("version %d: %w", m.Version, err))
		return true
	}
	if err := f.check(m); err != nil {
		f.fail(ctx, err)
		return false
	}
	f.trial(ctx, m.Trial())
	return f.kept.Phase == wire.Loading
}

// check reads the policy of a version. It returns an error when the policy names something that a fleet's policy must not name.
func (f *Follower) check(m *policies.Manifest) error {
	file := f.policy(m.Version)
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	p, err := policy.Parse(file, text)
	if err != nil {
		return err
	}
	names := []string{}
	for _, file := range m.Files {
		names = append(names, file.Name)
	}
	return policies.CheckPolicy(p, names)
}

// trial applies the loaded version for a time. It confirms the version when a hub is reached in that time.
func (f *Follower) trial(ctx context.Context, length time.Duration) {
	next := f.kept
	next.Phase, next.Ends, next.Tries = wire.Trial, time.Now().Add(length), next.Tries+1
	if !f.keep(next) {
		return
	}
	f.tell(ctx)
	f.Log(fmt.Sprintf("policy of the fleet: version %d, on trial for %v", next.Seen, length), nil)
	if err := f.Host.Apply(ctx, f.policy(next.Seen), length); err != nil {
		if ctx.Err() == nil {
			f.fail(ctx, errors.Join(err, f.Host.Rollback(ctx, f.policy(next.Seen)))) // the policy may be applied, although its copy for the next boot could not be saved
		}
		return
	}
	f.decide(ctx)
}

// decide confirms the trial when a hub is reached. Otherwise it returns to the previous policy.
func (f *Follower) decide(ctx context.Context) {
	end := f.kept.Ends.Add(-margin)
	within, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	var err error
	for try := 0; ; try++ {
		if err = f.Hub.Reach(within); err == nil || within.Err() != nil {
			break
		}
		periodic.Sleep(within, time.Second)
	}
	switch {
	case ctx.Err() != nil: // the daemon ends: the next daemon decides, or the kernel
	case err != nil:
		err = fmt.Errorf("no hub was reached after version %d was applied: %w", f.kept.Seen, err)
		if undo := f.Host.Rollback(ctx, f.policy(f.kept.Seen)); undo != nil {
			err = fmt.Errorf("%w; the kernel returns to the previous policy by itself: %w", err, undo)
		}
		f.fail(ctx, err)
	default:
		if err := f.Host.Confirm(ctx); err != nil {
			f.fail(ctx, fmt.Errorf("it could not be confirmed: %w", err))
			return
		}
		f.confirmed(ctx)
	}
}

// resume continues a trial that was started before the daemon was restarted.
func (f *Follower) resume(ctx context.Context) {
	now, err := f.Host.Running(ctx)
	k := f.kept
	switch {
	case err != nil:
		f.warn(err)
		periodic.Sleep(ctx, retryEvery)
	case now.Policy == f.policy(k.Seen) && now.Trial:
		f.decide(ctx)
	case now.Policy == f.policy(k.Seen) && k.Runs != k.Seen:
		f.confirmed(ctx)
	case k.Tries >= maxTries:
		f.fail(ctx, fmt.Errorf("the daemon ended in each of %d trials", k.Tries))
	default:
		k.Phase = wire.Loading
		f.store(k)
	}
}

// confirmed records that the version runs. If the record cannot be written, the next daemon finds the confirmed version in the kernel.
func (f *Follower) confirmed(ctx context.Context) {
	k := f.kept
	k.Phase, k.Runs, k.RunsContent, k.Tries, k.Problem = wire.Runs, k.Seen, k.Content, 0, ""
	if f.store(k); f.kept.Phase == wire.Runs {
		f.Log(fmt.Sprintf("policy of the fleet: version %d runs", k.Seen), nil)
	}
	f.tell(ctx)
}

// fail records that a version does not run here. The node then waits for a new version.
func (f *Follower) fail(ctx context.Context, err error) {
	f.warn(fmt.Errorf("version %d does not run here: %w", f.kept.Seen, err))
	k := f.kept
	k.Phase, k.Problem = wire.Failed, err.Error()
	f.store(k)
	f.tell(ctx)
}

// store records a decision. If the disk fails, the decision is kept only in memory.
func (f *Follower) store(k kept) {
	if err := k.write(f.Dir); err != nil {
		f.Log("", fmt.Errorf("policy of the fleet: %w", err))
	}
	f.kept, f.why = k, k.Problem
}

// editedEvery is how often a node checks that the files of the running version are unchanged.
const editedEvery = time.Minute

// edited returns an error when the files of the running version were changed on this host.
func (f *Follower) edited() error {
	if time.Since(f.lookedAt) > editedEvery || f.lookedOf != f.kept.Runs {
		f.lookedAt, f.lookedOf, f.found = time.Now(), f.kept.Runs, nil
		content, err := policies.ContentOf(f.path(f.kept.Runs))
		if err == nil && content != f.kept.RunsContent {
			err = errors.New("the files in " + f.path(f.kept.Runs) + " are not those that were signed")
		}
		f.found = err
	}
	return f.found
}
