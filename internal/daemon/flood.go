package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/os/periodic"
)

// floodLook is how often the packets that the policy drops are counted, if the program moves with a flood. floodSettle is the time after the daemon's
// start before the program may leave XDP.
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
	count   uint64
	read    time.Time // when count was read; zero: there is no count yet

	flood bool      // a flood lasts, so the program must run at XDP
	until time.Time // the time until which it lasts if the rate stays low
	said  string    // the last error, which is reported once
}

// move moves the program until ctx ends. At the end the program stays at XDP, because nothing would notice a flood.
func (w *watcher) move(ctx context.Context) {
	m := &mover{in: w.in, report: w.report, open: periodic.Task{Marks: w.in.Marks}, flood: true, until: time.Now().Add(floodSettle)}
	for wait := time.Duration(0); periodic.Sleep(ctx, wait); {
		m.tell(ctx, m.look(ctx))
		wait = floodLook
		if m.refused == nil {
			wait = periodic.Left(lookEvery)
		}
	}
	if m.refused == nil {
		return
	}
	m.refused.Close()
	if !m.flood {
		m.flood = true
		ended := context.WithoutCancel(ctx)
		m.tell(ended, m.place(ended))
	}
}

// look counts the packets, and moves the program when a flood begins or ends. It also moves it if another policy may run, or if a device has returned.
func (m *mover) look(ctx context.Context) (err error) {
	m.open.Due(func() bool {
		if err = m.reopen(ctx); err == nil && m.refused != nil {
			err = m.place(ctx)
		}
		return err == nil
	})
	if err != nil || m.refused == nil {
		return err
	}
	count, err := m.refused.Count()
	if err != nil {
		m.open.Forget()
		return err
	}
	now := time.Now()
	before, since := m.count, now.Sub(m.read)
	first := m.read.IsZero() || count < before
	m.count, m.read = count, now
	if first {
		return nil
	}
	was := m.flood
	switch rate := float64(count-before) / since.Seconds(); {
	case rate >= float64(m.refused.Start):
		m.flood, m.until = true, now.Add(m.refused.Calm)
	case m.flood && rate >= float64(m.refused.Start)/2:
		m.until = now.Add(m.refused.Calm)
	case m.flood && now.After(m.until):
		m.flood = false
	}
	if m.flood != was {
		return m.place(ctx)
	}
	return nil
}

// reopen opens the counters of the running policy.
func (m *mover) reopen(ctx context.Context) error {
	refused, err := m.in.Refused(ctx)
	if err != nil {
		return err
	}
	if m.refused != nil {
		m.refused.Close()
	}
	m.refused, m.read = refused, time.Time{}
	return nil
}

// place moves the program to where it must run.
func (m *mover) place(ctx context.Context) error {
	moved, err := m.in.MoveByFlood(ctx, m.flood)
	if len(moved) > 0 {
		m.report(Event{Text: (&control.Repaired{Devices: moved}).String()})
	}
	if errors.Is(err, datapath.ErrLocked) { // the command that holds the lock may change everything
		m.open.Forget()
		return nil
	}
	return err
}

// tell reports an error once, until it has disappeared.
func (m *mover) tell(ctx context.Context, err error) {
	text := fmt.Sprint(err)
	if err != nil && text != m.said && ctx.Err() == nil {
		m.report(Event{Err: err})
	}
	m.said = text
}
