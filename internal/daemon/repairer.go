// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/os/periodic"
)

// How soon the daemon restores rules and programs that other programs remove. The kernel reports changes of devices and of nftables at once. The
// kernel does not report that a program was detached, nor changes of legacy iptables and of ipset: these are checked every lookEvery. A check of
// netfilter takes at most 1/lookShare of a CPU, so large policies are checked less often, but at least every rulesLook. The reason for this bound is
// a busy machine: a check that only waits also takes long, and must not delay a repair.
const (
	lookEvery = time.Second
	lookShare = 20
	rulesLook = 10 * time.Second // also for nftables, in case an event was incomplete
	settling  = 20 * time.Millisecond
)

// restarting is the time for which native mode waits after the XDP program of another tool has left a device: the tool may only restart. mostReorders is
// how often the daemon restores the order at tc against the same program of another tool.
const (
	restarting   = 30 * time.Second
	mostReorders = 3
)

// When another manager removes repaired rules or programs again and again, repairs must wait. The sign of this is warRepairs repairs within warTime.
// From then on the wait doubles with each repair, up to warWait.
const (
	warRepairs = 5
	warTime    = time.Minute
	warWait    = 10 * time.Second
)

// repairer restores the parts of the policy in force that other programs remove, either on devices or in netfilter.
type repairer struct {
	repair func(context.Context) (*control.Repaired, error)
	rules  bool // it repairs netfilter; false: devices
	report func(Event)
	said   map[string]bool // errors that were reported and still hold
	whole  periodic.Task   // skips checks while nothing has changed
}

// repair restores the parts of the policy that other programs remove, until ctx ends.
func (w *watcher) repair(ctx context.Context) {
	changed, rules := make(chan struct{}, 1), make(chan struct{}, 1)
	go w.again(ctx, func() error {
		return linkEvents(ctx, func() { poke(changed) }, func() { poke(rules) })
	})
	go w.again(ctx, func() error {
		return netfilter.Events(ctx, func(e netfilter.Event) {
			if concerns(w.in, e) {
				poke(rules)
			}
		})
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		devices := &deviceRepairer{in: w.in, beside: map[string]time.Time{}, moves: map[string]int{}}
		r := &repairer{repair: devices.repair, report: w.report, said: map[string]bool{}, whole: periodic.Task{Marks: w.in.Marks}}
		r.run(ctx, changed, func(time.Duration) time.Duration { return lookEvery })
	}()
	r := &repairer{repair: w.in.RepairNetfilter, rules: true, report: w.report, said: map[string]bool{}}
	r.run(ctx, rules, func(took time.Duration) time.Duration {
		return min(max(w.rulesEvery(), took*lookShare), rulesLook)
	})
	<-done
}

// deviceRepairer repairs devices, and remembers what it must not do again at each check.
type deviceRepairer struct {
	in      control.Instance
	started bool                 // the first check is done
	beside  map[string]time.Time // when the XDP program of another tool was last seen on a device at tc
	moves   map[string]int       // how often the order was restored against the same programs of other tools
}

func (r *deviceRepairer) repair(ctx context.Context) (*control.Repaired, error) {
	repaired, err := r.in.RepairDevices(ctx, control.Choices{Native: r.native, Reorder: r.reorder})
	if repaired != nil {
		r.started = true
		for _, device := range repaired.Beside {
			r.beside[device] = time.Now()
		}
	}
	return repaired, err
}

// native selects all devices at the start, and later those that the XDP program of another tool has left for good.
func (r *deviceRepairer) native(device string) bool {
	seen, was := r.beside[device]
	if !was || time.Since(seen) < restarting {
		return !r.started
	}
	delete(r.beside, device)
	return true
}

// reorder ends a war with another tool that demands the same place. status still warns then.
func (r *deviceRepairer) reorder(m datapath.Misplaced) bool {
	r.moves[m.String()]++
	return r.moves[m.String()] <= mostReorders
}

// poke sends a signal, unless a signal is waiting already.
func poke(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// again runs a source of events until ctx ends, and restarts it when it fails. The checks at intervals continue in the meantime.
func (w *watcher) again(ctx context.Context, source func() error) {
	periodic.Run(ctx, lookEvery, func() {
		if err := source(); err != nil && ctx.Err() == nil {
			w.report(Event{Err: err})
		}
	})
}

// linkEvents calls changed when a device appears, disappears or changes. It calls appeared when a device with a new name appears, because before
// Linux 6.16 nftables chains lose a device that disappears.
func linkEvents(ctx context.Context, changed, appeared func()) error {
	names := map[int32]string{}
	updates, lost := make(chan netlink.LinkUpdate, 64), make(chan error, 1)
	ended, end := context.WithCancel(ctx)
	defer end()
	err := netlink.LinkSubscribeWithOptions(updates, ended.Done(), netlink.LinkSubscribeOptions{ErrorCallback: func(err error) {
		select {
		case lost <- err:
		default:
		}
	}})
	if err != nil {
		return fmt.Errorf("watching devices: %w", err)
	}
	changed() // for changes before this subscription
	appeared()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-lost:
			return fmt.Errorf("watching devices: %w", err)
		case u, open := <-updates:
			if !open {
				return nil
			}
			changed()
			if u.Header.Type == unix.RTM_DELLINK {
				delete(names, u.Index)
			} else if name := u.Attrs().Name; names[u.Index] != name {
				names[u.Index] = name
				appeared()
			}
		}
	}
}

// concerns reports whether an event can be about the tables of an instance or of iptables. Elements of the instance's dynamic sets do not count,
// because they change all the time.
func concerns(in control.Instance, e netfilter.Event) bool {
	switch {
	case e.Table == "":
		return true
	case slices.Contains([]string{"raw", "mangle", "filter"}, e.Table):
		return e.Set == ""
	}
	return in.Owns(e.Table) && e.Set == ""
}

// rulesEvery returns the interval at which the rules in netfilter are checked.
func (w *watcher) rulesEvery() time.Duration {
	if running, err := w.in.RunningPolicy(context.Background()); err == nil && running.Legacy {
		return lookEvery
	}
	return rulesLook
}

// run checks and repairs at each signal, and at intervals.
func (r *repairer) run(ctx context.Context, signal <-chan struct{}, every func(took time.Duration) time.Duration) {
	var recent []time.Time
	for {
		begin := time.Now()
		repaired := false
		r.whole.Due(func() (calm bool) {
			repaired, calm = r.once(ctx)
			return calm
		})
		took := time.Since(begin)
		if repaired {
			recent = append(recent, begin)
		}
		recent = slices.DeleteFunc(recent, func(t time.Time) bool { return time.Since(t) > warTime })
		if repaired && !r.rest(ctx, recent) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-signal:
			r.whole.Forget()
			if r.rules { // a change of rules causes several events
				time.Sleep(settling)
			}
		case <-time.After(periodic.Left(every(took))):
		}
	}
}

// rest waits if another manager undoes the repairs again and again. It returns false if ctx has ended.
func (r *repairer) rest(ctx context.Context, recent []time.Time) bool {
	over := len(recent) - warRepairs
	if over < 0 {
		return true
	}
	wait := min(lookEvery<<min(over, 10), warWait)
	r.report(Event{Err: fmt.Errorf("something undoes the repairs again and again, %d times in the last minute: the next is in %v", len(recent), wait)})
	return periodic.Sleep(ctx, wait)
}

// once repairs the missing parts. did is true when it repaired anything. calm is true when the check succeeded and found nothing missing. An error is
// reported once, until it has disappeared.
func (r *repairer) once(ctx context.Context) (did, calm bool) {
	repaired, err := r.repair(ctx)
	if errors.Is(err, datapath.ErrNotLoaded) || errors.Is(err, datapath.ErrLocked) || ctx.Err() != nil { // the command that holds the lock may change everything
		return false, false
	}
	now := map[string]bool{}
	if err != nil {
		now[err.Error()] = true
		if !r.said[err.Error()] {
			r.report(Event{Err: fmt.Errorf("what has gone of the policy could not be put back, and is tried again: %w", err)})
		}
	}
	if repaired != nil {
		texts := slices.Clone(repaired.Missed)
		for _, name := range repaired.Renamed {
			texts = append(texts, control.RenamedText(name))
		}
		for _, name := range repaired.Waiting {
			texts = append(texts, fmt.Sprintf("device %s has gone; it is filtered again as soon as it returns", name))
		}
		for _, text := range texts {
			if now[text] = true; !r.said[text] {
				r.report(Event{Text: text})
			}
		}
	}
	r.said = now
	if repaired == nil || !repaired.Any() {
		return false, err == nil
	}
	r.report(Event{Text: "repaired: " + repaired.String()})
	return true, false
}
