// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/policy"
)

// The packets that the policy drops are counted every floodLook, if the program moves with a flood, and every floodSure once their rate is high. A
// flood begins when the rate is still high after floodBurst: a shorter burst moves nothing, however large it is. So a move to XDP starts 60 to
// 130 ms after the first packet. Losses in the receive ring are read every lossLook, as that takes more system calls. floodSettle is the time after the
// start of the daemon or of such a policy before the program may leave XDP.
const (
	floodLook   = 50 * time.Millisecond
	floodSure   = 10 * time.Millisecond
	floodBurst  = 50 * time.Millisecond
	lossLook    = time.Second
	floodSettle = 5 * time.Second
	longRun     = 500 * time.Millisecond // of the thread that looks, without a pause; a look takes less than a millisecond, a move some
)

// mover moves the program between tc and XDP as floods begin and end.
type mover struct {
	in     control.Instance
	report func(Event)

	refused *control.Refused // nil: the program of the running policy does not move
	open    periodic.Task    // opens refused when the running policy may have changed
	next    time.Time        // the earliest time for that: to find out whether it may have changed takes some dozen system calls
	count   uint64
	read    time.Time // when count was read; zero: there is no count yet
	losses  losses

	floods  map[policy.XDP]*flood // by the settings of the devices
	trouble error                 // the result of the last attempt to open refused or to move the program
	said    string                // the last error, which is reported once
}

// losses are the losses in the receive rings.
type losses struct {
	last  control.Losses
	tried time.Time  // when they were last read, perhaps without success
	known bool       // they were read then
	rate  [2]float64 // of the last two intervals, in packets per second
	err   error      // why they are not known
}

// look reads the losses if that is due. It returns the rate that two intervals in a row have had. If the losses cannot be read, the rate is 0: the count
// of the packets alone still shows most floods.
func (l *losses) look(read func() (control.Losses, error), now time.Time) (rate float64) {
	if since := now.Sub(l.tried); since >= lossLook {
		n, err := read()
		switch {
		case err != nil:
			l.rate = [2]float64{}
		case l.known:
			l.rate = [2]float64{float64(n.Since(l.last)) / since.Seconds(), l.rate[0]}
		}
		l.last, l.tried, l.known, l.err = n, now, err == nil, err
	}
	return min(l.rate[0], l.rate[1])
}

// flood is the state of a flood by one setting of `xdp`, for all packets of the policy.
type flood struct {
	on    bool      // a flood lasts, so the program must run at XDP
	known bool      // whether on is known; until then the program stays where it is
	until time.Time // the time until which it lasts if the rate stays low

	high  time.Time // the look that found a high rate, with which a flood may begin; zero: none
	since float64   // packets since high
	after time.Time // the first look by which each burst has ended that is shorter than floodBurst and was found by the look high; zero: not yet
	rest  float64   // packets since after
}

// see takes the number of the packets that came between two looks. It reports whether something has changed.
func (f *flood) see(x policy.XDP, packets float64, from, to time.Time) (changed bool) {
	was := *f
	high := func(packets float64, from time.Time) bool { return packets >= float64(x.Start)*to.Sub(from).Seconds() }
	switch {
	case f.on && (high(packets, from) || f.known && high(2*packets, from)):
		f.known, f.until = true, to.Add(x.Calm)
	case f.on && to.After(f.until):
		f.on, f.known = false, true
	case !f.on && f.high.IsZero() && high(packets, from):
		f.high, f.since, f.after, f.rest = to, 0, time.Time{}, 0
	case !f.on && !f.high.IsZero():
		f.since += packets
		if from.Sub(f.high) < floodBurst {
			break
		}
		if f.after.IsZero() {
			f.after = from
		}
		f.rest += packets
		switch {
		case high(f.rest, f.after) && high(f.since, f.high):
			f.on, f.known, f.until, f.high = true, true, to.Add(x.Calm), time.Time{}
		case to.Sub(f.after) >= floodBurst:
			f.high = time.Time{}
		}
	}
	return f.on != was.on || f.known != was.known
}

// move moves the program until ctx ends. At the end the program stays at XDP, because nothing would notice a flood.
func (w *watcher) move(ctx context.Context) {
	m := &mover{in: w.in, report: w.report, open: periodic.Task{Marks: w.in.Marks}, floods: map[policy.XDP]*flood{}}
	hurry(ctx, w.report)
	for wait := time.Duration(0); m.sleep(ctx, wait); {
		m.look(ctx)
		m.said = reportOnce(m.report, errors.Join(m.trouble, m.losses.err), m.said)
		switch {
		case m.refused == nil:
			wait = periodic.Left(lookEvery)
		case m.rises():
			wait = floodSure
		default:
			wait = floodLook
		}
	}
	if m.refused == nil {
		return
	}
	m.refused.Close()
	for _, f := range m.floods {
		f.on, f.known = true, true
	}
	if err := m.tryPlace(context.WithoutCancel(ctx), "the daemon ends"); err != nil { // as text: errors after the end of ctx are not reported
		m.report(Event{Text: fmt.Sprintf("the daemon ends, and a device stays at tc, where no flood moves it: %v; `floodwall repair` moves it to XDP later", err)})
	}
}

// hurry gives the calling goroutine a thread of its own, which runs before other threads when a flood takes all CPUs. The thread ends with the goroutine.
// It has a real-time priority above that of the kernel's threads for interrupts, which may receive the flood. If it used the CPU for longRun without a
// pause, it would get the usual policy of threads. If it still went on, the kernel would end the daemon, and the service manager start the next one. The
// daemon may lack the right to a real-time priority: then the thread has the highest of the others, if possible.
func hurry(ctx context.Context, report func(Event)) {
	const urgent = 51 // the kernel's threads for interrupts have 50 (sched_set_fifo in kernel/sched/syscalls.c)
	runtime.LockOSThread()
	thread := unix.Gettid()
	slow := func() {
		_ = unix.SchedSetAttr(thread, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Flags: unix.SCHED_FLAG_RESET_ON_FORK, Nice: -20}, 0)
	}
	late := make(chan os.Signal, 1)
	signal.Notify(late, unix.SIGXCPU)
	context.AfterFunc(ctx, func() { signal.Stop(late) })
	err := unix.Prlimit(0, unix.RLIMIT_RTTIME, &unix.Rlimit{Cur: uint64(longRun.Microseconds()), Max: uint64(2 * longRun.Microseconds())}, nil)
	if err == nil {
		err = unix.SchedSetAttr(thread, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Flags: unix.SCHED_FLAG_RESET_ON_FORK, Priority: urgent}, 0)
	}
	if err != nil {
		slow()
		return
	}
	go func() {
		select {
		case <-late:
			slow()
			report(Event{Text: fmt.Sprintf("the thread that looks for floods ran for %v without a pause: it no longer has a real-time priority, so that a "+
				"flood may move the program to XDP later; a restart of the daemon gives it back", longRun)})
		case <-ctx.Done():
		}
	}()
}

// sleep waits, and reports whether ctx goes on. A short wait blocks the thread, so that it ends on time in a flood.
func (m *mover) sleep(ctx context.Context, wait time.Duration) bool {
	if m.refused == nil || wait > floodLook {
		return periodic.Sleep(ctx, wait)
	}
	periodic.SleepThread(wait)
	return ctx.Err() == nil
}

// rises reports whether a flood may be beginning.
func (m *mover) rises() bool {
	for _, f := range m.floods {
		if !f.on && !f.high.IsZero() {
			return true
		}
	}
	return false
}

// look counts the packets, and moves the program when a flood begins or ends. It also moves it if another policy may run, or if a device has returned.
func (m *mover) look(ctx context.Context) {
	if now := time.Now(); !now.Before(m.next) {
		m.next = now.Add(lookEvery)
		m.open.Due(func() bool {
			if m.trouble = m.reopen(ctx); m.trouble != nil {
				return false
			}
			return m.refused == nil || m.place(ctx)
		})
	}
	if m.refused == nil {
		return
	}
	now := time.Now()
	count, err := m.refused.Count()
	if err != nil {
		m.trouble = err
		m.open.Forget()
		return
	}
	lost := m.losses.look(m.refused.Losses, now)
	before, last := m.count, m.read
	first := last.IsZero() || count < before
	m.count, m.read = count, now
	if first {
		return
	}
	changed := false
	for x, f := range m.floods {
		changed = f.see(x, float64(count-before)+lost*now.Sub(last).Seconds(), last, now) || changed
	}
	if changed && !m.place(ctx) {
		m.open.Forget()
	}
}

// reopen opens the counters of the running policy. While they stay the same, their count goes on.
func (m *mover) reopen(ctx context.Context) error {
	if m.refused == nil { // the answer is shared with other parts of the daemon, and most policies do not move
		switch running, err := m.in.RunningPolicy(ctx); {
		case errors.Is(err, datapath.ErrNotLoaded):
			return nil
		case err != nil, !running.MovesByFlood:
			return err
		}
	}
	refused, err := m.in.Refused(ctx)
	if err != nil {
		return err
	}
	if !refused.Continues(m.refused) {
		m.read, m.losses = time.Time{}, losses{}
	}
	if m.refused != nil {
		m.refused.Close()
	}
	m.refused = refused
	var settings []policy.XDP
	if refused != nil {
		settings = refused.Settings
	}
	maps.DeleteFunc(m.floods, func(x policy.XDP, _ *flood) bool { return !slices.Contains(settings, x) })
	for _, x := range settings {
		if m.floods[x] == nil {
			m.floods[x] = &flood{on: true, until: time.Now().Add(floodSettle)}
		}
	}
	return nil
}

// place is tryPlace for a flood that begins or ends. It reports whether the programs are where they must run, or where the devices keep them.
func (m *mover) place(ctx context.Context) (done bool) {
	err := m.tryPlace(ctx, "")
	trial := errors.Is(err, control.ErrTrialKeepsModes)
	m.trouble = err
	if trial || errors.Is(err, datapath.ErrLocked) { // the command that holds the lock may change everything
		m.trouble = nil
	}
	return err == nil || trial
}

// tryPlace moves the programs to where they must run. why is the reason; "" stands for the begin or the end of a flood.
func (m *mover) tryPlace(ctx context.Context, why string) error {
	if !slices.ContainsFunc(slices.Collect(maps.Values(m.floods)), func(f *flood) bool { return f.known }) {
		return nil
	}
	moved, refused, err := m.in.MoveByFlood(ctx, why, func(x policy.XDP) (on, known bool) {
		f := m.floods[x]
		return f != nil && f.on, f != nil && f.known
	})
	if len(moved) > 0 {
		m.report(Event{Text: (&control.Repaired{Devices: moved}).String()})
	}
	for _, r := range refused {
		m.report(Event{Text: fmt.Sprintf("device %s refuses the mode that the flood, its end or the end of the daemon needs: %s", r.Device, r.Cause)})
	}
	return err
}
