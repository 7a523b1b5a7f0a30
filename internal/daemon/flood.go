// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/os/periodic"
)

// floodLook is how often the packets that the policy drops are counted, if the program moves with a flood. floodSettle is the time after the start of
// the daemon or of such a policy before the program may leave XDP.
const (
	floodLook   = 100 * time.Millisecond
	floodSettle = 5 * time.Second
)

// mover moves the program between tc and XDP as a flood begins and ends.
type mover struct {
	in     control.Instance
	report func(Event)

	refused *control.Refused // nil: the program of the running policy does not move
	open    periodic.Task    // opens refused when the running policy may have changed
	next    time.Time        // the earliest time for that: until a change has settled, and during a trial, open would do it at each look
	count   uint64
	read    time.Time // when count was read; zero: there is no count yet

	flood   bool      // a flood lasts, so the program must run at XDP
	until   time.Time // the time until which it lasts if the rate stays low
	known   bool      // whether flood is known; until then the program stays where it is
	trouble error     // the result of the last attempt to open refused or to move the program
	said    string    // the last error, which is reported once
}

// move moves the program until ctx ends. At the end the program stays at XDP, because nothing would notice a flood.
func (w *watcher) move(ctx context.Context) {
	m := &mover{in: w.in, report: w.report, open: periodic.Task{Marks: w.in.Marks}}
	for wait := time.Duration(0); periodic.Sleep(ctx, wait); {
		m.look(ctx)
		m.said = reportOnce(m.report, m.trouble, m.said)
		wait = floodLook
		if m.refused == nil {
			wait = periodic.Left(lookEvery)
		}
	}
	if m.refused == nil {
		return
	}
	m.refused.Close()
	m.flood = true
	m.place(context.WithoutCancel(ctx), "the daemon ends")
}

// look counts the packets, and moves the program when a flood begins or ends. It also moves it if another policy may run, or if a device has returned.
func (m *mover) look(ctx context.Context) {
	if !time.Now().Before(m.next) {
		m.open.Due(func() bool {
			m.next = time.Now().Add(lookEvery)
			if m.trouble = m.reopen(ctx); m.trouble != nil {
				return false
			}
			return m.refused == nil || !m.known || m.place(ctx, "")
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
	before, since := m.count, now.Sub(m.read)
	first := m.read.IsZero() || count < before
	m.count, m.read = count, now
	if first {
		return
	}
	was, knew := m.flood, m.known
	switch rate := float64(count-before) / since.Seconds(); {
	case rate >= float64(m.refused.Start):
		m.flood, m.known, m.until = true, true, now.Add(m.refused.Calm)
	case m.flood && m.known && rate >= float64(m.refused.Start)/2:
		m.until = now.Add(m.refused.Calm)
	case m.flood && now.After(m.until):
		m.flood, m.known = false, true
	}
	if (m.flood != was || m.known != knew) && !m.place(ctx, "") {
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
		m.read = time.Time{}
	}
	switch {
	case m.refused != nil:
		m.refused.Close()
	case refused != nil:
		m.flood, m.known, m.until = true, false, time.Now().Add(floodSettle)
	}
	m.refused = refused
	return nil
}

// place moves the program to where it must run, and reports whether it is there. note says why; "" stands for the begin or the end of a flood.
func (m *mover) place(ctx context.Context, note string) (done bool) {
	moved, err := m.in.MoveByFlood(ctx, m.flood)
	if note != "" {
		for i := range moved {
			moved[i].Note = note
		}
	}
	if len(moved) > 0 {
		m.report(Event{Text: (&control.Repaired{Devices: moved}).String()})
	}
	m.trouble = err
	if errors.Is(err, datapath.ErrLocked) { // the command that holds the lock may change everything
		m.trouble = nil
	}
	return err == nil
}
