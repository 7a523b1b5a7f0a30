package control

import (
	"context"
	"errors"
	"time"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// The deadlines of a change have an order: first the old rulesets in netfilter decide again, then XDP returns to the previous policy, then
// the new rulesets become inert. So at no moment does a packet pass that both policies drop. A later deadline is set before an earlier one,
// and an earlier one takes effect only when all are set: the process may be killed, or have to wait, between any two steps.

// ahead is the time by which XDP returns before the new rulesets in netfilter become inert.
const ahead = 300 * time.Millisecond

// programEnds is when the new program returns unless it is confirmed, zero for never. Until start has set the time of a trial,
// that is before the new rulesets become inert which were loaded at first.
func (s *switchover) programEnds(ctx context.Context) (ends time.Time, err error) {
	switch {
	case s.trial == 0 && !s.both():
		return ends, nil
	case len(s.new)+len(s.old) == 0 || !s.programs():
		return time.Now().Add(s.trial), nil
	}
	ends = s.begin.Add(s.guarded())
	if time.Until(ends) < s.guarded()/2 { // this machine is slow
		ends, err = s.hold(ctx, s.guarded())
	}
	return ends.Add(-ahead), err
}

// hold extends the time for which the new rulesets decide to at least length from now on.
func (s *switchover) hold(ctx context.Context, length time.Duration) (ends time.Time, err error) {
	ends = time.Now().Add(length)
	for _, p := range s.manifest.AllRulesets() {
		if err := s.tools[p.Kind].Renew(ctx, p.Name, length); err != nil {
			return ends, err
		}
	}
	return ends, nil
}

// Steps that take longer than startSlack use up time of the trial. They are repeated with more time, up to this often.
const (
	startSlack = 300 * time.Millisecond
	startTries = 5
)

// start puts the new policy in force alone, now that all of it is loaded. With a trial, its time begins. After a move that changed XDP, the
// old rulesets rest until the move is done.
func (s *switchover) start(ctx context.Context) error {
	switch {
	case s.trial == 0 && (s.move == nil || !s.programs()):
		return nil
	case s.trial == 0:
		return s.startTrial(ctx, s.guarded())
	case len(s.new)+len(s.old) == 0:
		return s.restart(time.Now().Add(s.trial))
	}
	var more time.Duration
	for range startTries {
		began := time.Now()
		if err := s.startTrial(ctx, s.trial+more); err != nil {
			return err
		}
		took := time.Since(began)
		if took <= more+startSlack {
			break
		}
		more = 2 * took
	}
	return nil
}

// startTrial begins a trial, or begins it anew.
func (s *switchover) startTrial(ctx context.Context, length time.Duration) error {
	if err := s.eachOld(func(k netfilter.Kind, name, old string) error { return s.tools[k].SetReturn(ctx, name, old, length) }); err != nil {
		return err
	}
	ends, err := s.hold(ctx, length)
	if err == nil {
		err = s.restart(ends.Add(-ahead))
	}
	if err != nil {
		return err
	}
	return s.eachOld(func(k netfilter.Kind, name, old string) error { return s.tools[k].SetAside(ctx, name, old) })
}

// eachOld calls fn for the old rulesets, each with the new one that takes its place. One that only stands in, and so leaves nobody
// deciding, comes last.
func (s *switchover) eachOld(fn func(k netfilter.Kind, name, old string) error) error {
	for _, p := range s.manifest.AllRulesets() {
		if old := s.old[p.Kind]; old != nil {
			if err := fn(p.Kind, p.Name, old.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// restart gives the programs' trial another deadline, if they have one.
func (s *switchover) restart(ends time.Time) error {
	if !s.programs() {
		return nil
	}
	if err := s.running.state.RestartTrial(ends); !errors.Is(err, datapath.ErrNoTrial) {
		return err
	}
	return nil
}
