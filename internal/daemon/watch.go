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

// followWait is the time for which Watch waits after a change for further ones: an interface that comes up changes several addresses at
// once.
const followWait = 50 * time.Millisecond

// Event is something that Watch did, or could not do.
type Event struct {
	Text string
	Err  error
}

// trialLook is how often Watch looks for a trial that has ended.
const trialLook = time.Second

// proxyLook is how often Watch looks whether the last connection that SYNPROXY began has ended: the kernel hands out all of
// conntrack for it.
const proxyLook = time.Minute

// keyLife is the time for which a key of cookies is used. A cookie is valid for two minutes, so the previous key suffices for older
// cookies.
const keyLife = time.Hour

// keepLook is the interval at which the file of bans is written to the disk, and is rewritten if most of its lines are void. Then Watch also
// looks whether samples arrive.
const keepLook = 30 * time.Second

// watcher keeps one instance in the state that its policy asks for.
type watcher struct {
	in     control.Instance
	report func(Event)
}

// Watch keeps up with the host until ctx ends. It
//   - puts back what others remove of the policy in force (Repair);
//   - enters the host's own addresses and local routes into the set `local` of the XDP program as they change, and the Ethernet addresses of its devices:
//     netfilter asks the kernel;
//   - removes what is left of a trial that nobody confirmed, and of connections that SYNPROXY began when they are over;
//   - gives protections a new key for cookies every hour;
//   - bans sources that exceed limits with `ban`;
//   - enters bans again that a set has lost before their end;
//   - fetches lists when they are due, and exchanges sets of which the list or the database has changed;
//   - moves rules to where they cost least by the present model of costs. A nil costs leaves rules where they are.
//
// report is told what was done, and errors, after which Watch goes on. Several goroutines call it, one at a time. Watch
// returns a *daemonlock.HeldError while another process watches the instance, and a *statedir.Error when the instance has another
// state directory.
//
// sockets is the directory in which one of beside serves the API, for commands that ask it; "" when none does.
//
// The functions of beside run as long as Watch does, from when it is known that no other process watches. When one of them
// returns an error, Watch ends with it.
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
		if e.Err == nil || ctx.Err() == nil { // the end of Watch is no error of what it ends
			report(e)
		}
	})}
	if unsure != nil {
		w.report(Event{Text: "the state directory of the policy that runs is not known", Err: unsure})
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	tasks := []func(context.Context){w.repair, w.ban, w.feeds, w.restoreBans}
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

// serialized has goroutines call fn one at a time.
func serialized(fn func(Event)) func(Event) {
	var one sync.Mutex
	return func(e Event) {
		one.Lock()
		defer one.Unlock()
		fn(e)
	}
}

// follow keeps up with the host's addresses, devices and with trials until ctx ends.
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
			if ctx.Err() != nil { // its end closes the socket, too
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
			err := w.in.KeepBans(ctx)
			if err != nil && err.Error() != unkept { // once, until it has gone
				w.report(Event{Err: err})
			}
			unkept = fmt.Sprint(err)
			unread = w.samples(ctx, unread)
		}
	}
}

// refreshLocal brings the addresses up to date.
func (w *watcher) refreshLocal(ctx context.Context) {
	added, removed, err := w.in.RefreshLocal(ctx)
	if added+removed > 0 || err != nil {
		w.report(Event{Text: fmt.Sprintf("own addresses: %d added, %d removed", added, removed), Err: err})
	}
}

// finishTrial cleans up after a trial, and reports whether there was nothing to do.
func (w *watcher) finishTrial(ctx context.Context) (calm bool) {
	number, err := w.in.FinishTrial(ctx)
	if number > 0 || err != nil {
		w.report(Event{Text: fmt.Sprintf("the trial of generation %d ended unconfirmed: the previous policy is in force again", number), Err: err})
	}
	return number == 0 && err == nil
}

// releaseProxy removes what is left for connections that SYNPROXY began, when they are over.
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

// samples tells once that samples of the traffic do not arrive in this daemon. It asks the kernel, not the part that reads them.
func (w *watcher) samples(ctx context.Context, said string) string {
	unread, err := w.in.SamplesUnread(ctx)
	if err != nil {
		return said // for others to say, who open the same instance
	}
	if unread != "" && said == "" {
		w.report(Event{Err: errors.New(unread)})
	}
	return unread
}

// syncBans waits until the disk has the file of bans.
func (w *watcher) syncBans() {
	if w.in.Bans != nil {
		w.in.Bans.Sync() // without success the system writes it later
	}
}
