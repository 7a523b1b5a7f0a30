// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/engine/statedir"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/model/cost"
	"github.com/floodwall/floodwall/internal/os/instance"
	"github.com/floodwall/floodwall/internal/os/periodic"
)

// followWait is how long Watch waits after a change of addresses for further changes: an interface that comes up changes several addresses at once.
const followWait = 50 * time.Millisecond

// Event is an action of Watch, or an error.
type Event struct {
	Text string
	Err  error
}

// trialLook is how often Watch checks whether a trial has ended.
const trialLook = time.Second

// proxyLook is how often Watch checks whether the last connection that SYNPROXY began has ended. Before the end of that connection, each check makes
// the kernel list all conntrack entries.
const proxyLook = time.Minute

// keyLife is the time for which a key of cookies is used. A cookie is valid for two minutes, so the previous key suffices for cookies that were made
// with an older key.
const keyLife = time.Hour

// keepLook is the interval at which the file of bans is written to the disk. If most of the file's lines are void, Watch rewrites the file. At the
// same interval Watch checks whether samples arrive.
const keepLook = 30 * time.Second

// watcher keeps one instance in the state that its policy asks for.
type watcher struct {
	in     control.Instance
	report func(Event)
}

// Watch adapts the policy in force to changes of the host until ctx ends. It
//   - restores the parts of the policy that other programs remove (Repair);
//   - moves the program between tc and XDP as a flood begins and ends, if the policy asks for that;
//   - enters the host's own addresses and local routes into the set `local` of the XDP program when they change, and the Ethernet addresses of its
//     devices (netfilter asks the kernel instead);
//   - removes the remains of a trial that nobody confirmed, and of connections that SYNPROXY began when these connections have ended;
//   - gives protections a new key for cookies every hour;
//   - bans sources that exceed limits with `ban`;
//   - enters a ban again when a set has lost it before the ban's end;
//   - fetches lists when they are due, and exchanges sets whose list or database has changed;
//   - moves rules to the hooks where they cost least by the present model of costs. If costs is nil, Watch moves no rules.
//
// Watch calls report with each action and each error. Watch continues after an error. Several goroutines call report, but one at a time. Watch
// returns a *instance.HeldError while another process watches the instance, and a *statedir.Error when the instance has another state directory.
//
// sockets is the directory in which a function of beside serves the API to commands. It is "" when there is no API.
//
// The functions in beside start when Watch holds the lock that excludes other watching processes. They run as long as Watch does. When one of them
// returns an error, Watch ends with that error.
func Watch(ctx context.Context, in control.Instance, sockets string, costs func() *cost.Model, report func(Event), beside ...func(context.Context) error) error {
	release, err := instance.LockOf(in.Dir).Acquire(in.State, sockets)
	if err != nil {
		return err
	}
	defer release()
	unsure := statedir.Check(in.Dir, in.State)
	var other *statedir.Error
	if errors.As(unsure, &other) {
		return unsure
	}
	if unsure == nil {
		unsure = statedir.Claim(ctx, in.Dir, in.State)
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &watcher{in: in, report: serialized(func(e Event) {
		if e.Err == nil || ctx.Err() == nil { // errors after the end of ctx are only a consequence of it
			report(e)
		}
	})}
	if unsure != nil {
		w.report(Event{Text: "the state directory of the policy that runs is not known", Err: unsure})
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	tasks := []func(context.Context){w.repair, w.move, w.ban, w.feeds, w.restoreBans}
	if costs != nil {
		tasks = append(tasks, func(ctx context.Context) { w.place(ctx, costs) })
	}
	for _, task := range tasks {
		running.Go(func() { task(ctx) })
	}
	ended := make(chan error, len(beside))
	for _, task := range beside {
		running.Go(func() {
			if err := task(ctx); err != nil {
				ended <- err
				cancel()
			}
		})
	}
	err = w.follow(ctx)
	select {
	case failed := <-ended:
		return failed
	default:
		return err
	}
}

// reportOnce reports an error, unless it is the same as in the last call: it is reported once, until it has disappeared. last is the result of the last
// call, at first "".
func reportOnce(report func(Event), err error, last string) string {
	if err == nil {
		return ""
	}
	if err.Error() != last {
		report(Event{Err: err})
	}
	return err.Error()
}

// serialized returns a function that several goroutines may call at the same time. It calls fn for one of them at a time.
func serialized(fn func(Event)) func(Event) {
	var one sync.Mutex
	return func(e Event) {
		one.Lock()
		defer one.Unlock()
		fn(e)
	}
}

// follow reacts to changes of the host's addresses and devices and to the end of trials, until ctx ends.
func (w *watcher) follow(ctx context.Context) error {
	local, err := facts.FollowLocal(ctx)
	if err != nil {
		return err
	}
	lost := make(chan error, 1)
	links := make(chan netlink.LinkUpdate, 64)
	linkOptions := netlink.LinkSubscribeOptions{ErrorCallback: func(err error) {
		select {
		case lost <- err:
		default:
		}
	}}
	if err := netlink.LinkSubscribeWithOptions(links, ctx.Done(), linkOptions); err != nil {
		return fmt.Errorf("watching devices: %w", err)
	}
	look := time.NewTimer(periodic.Left(trialLook))
	defer look.Stop()
	rotate := time.NewTicker(keyLife)
	defer rotate.Stop()
	proxied := time.NewTicker(proxyLook)
	defer proxied.Stop()
	keep, unkept, unread := time.NewTicker(keepLook), "", ""
	defer keep.Stop()
	defer w.syncBans()
	settled := periodic.Task{Marks: w.in.Marks}
	due := time.After(0) // addresses and devices may have changed since the policy was applied
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-lost:
			if ctx.Err() != nil { // the end of ctx closes the socket
				return nil
			}
			return fmt.Errorf("watching devices: %w", err)
		case _, open := <-local:
			switch {
			case !open && ctx.Err() == nil:
				return errors.New("watching local routes: the socket of netlink has ended")
			case !open:
				return nil
			}
			if due == nil {
				due = time.After(followWait)
			}
		case _, open := <-links:
			if !open {
				return nil
			}
			if due == nil {
				due = time.After(followWait)
			}
		case <-due:
			due = nil
			w.refreshLocal(ctx)
		case <-look.C:
			look.Reset(periodic.Left(trialLook))
			settled.Due(func() bool { return w.finishTrial(ctx) })
		case <-rotate.C:
			w.rotateKeys(ctx)
		case <-proxied.C:
			w.releaseProxy(ctx)
		case <-keep.C:
			unkept = reportOnce(w.report, w.in.KeepBans(ctx), unkept)
			unread = w.samples(ctx, unread)
		}
	}
}

// refreshLocal updates the addresses of the host.
func (w *watcher) refreshLocal(ctx context.Context) {
	added, removed, err := w.in.RefreshLocal(ctx)
	if added+removed > 0 || err != nil {
		w.report(Event{Text: fmt.Sprintf("own addresses: %d added, %d removed", added, removed), Err: err})
	}
}

// finishTrial removes the remains of a trial. It reports whether there was nothing to do.
func (w *watcher) finishTrial(ctx context.Context) (calm bool) {
	number, err := w.in.FinishTrial(ctx)
	if number > 0 || err != nil {
		w.report(Event{Text: fmt.Sprintf("the trial of generation %d ended unconfirmed: the previous policy is in force again", number), Err: err})
	}
	return number == 0 && err == nil
}

// releaseProxy removes the state for connections that SYNPROXY began, when these connections have ended.
func (w *watcher) releaseProxy(ctx context.Context) {
	released, err := w.in.Release(ctx)
	if released || err != nil {
		w.report(Event{Text: "the last connection that SYNPROXY began has ended: its table is removed", Err: err})
	}
}

// rotateKeys gives SYN cookies a new key.
func (w *watcher) rotateKeys(ctx context.Context) {
	if done, err := w.in.RotateKeys(ctx); done || err != nil {
		w.report(Event{Text: "new key for SYN cookies", Err: err})
	}
}

// samples reports once when no task of this daemon receives the samples of the traffic. It asks the kernel, not the code that reads samples.
func (w *watcher) samples(ctx context.Context, said string) string {
	unread, err := w.in.SamplesUnread(ctx)
	if err != nil {
		return said // other tasks open the same instance and report this error
	}
	if unread != "" && said == "" {
		w.report(Event{Err: errors.New(unread)})
	}
	return unread
}

// syncBans waits until the file of bans is on the disk.
func (w *watcher) syncBans() {
	if w.in.Bans != nil {
		w.in.Bans.Sync() // after a failure the system writes it later
	}
}
