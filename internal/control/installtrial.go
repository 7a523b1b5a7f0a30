package control

import (
	"context"
	"errors"
	"time"

	"github.com/floodwall/floodwall/internal/datapath"
)

// ahead is how long before the rulesets in netfilter XDP returns to the policy before: the old rulesets decide again by then,
// and the new ones still do, so that no packet is let by that both policies drop.
const ahead = 300 * time.Millisecond

// programGuard is how long the new program decides unless it is confirmed, 0 for ever. Alone, its trial begins with it. With
// rulesets in netfilter it returns before they become inert.
func (s *switchover) programGuard(ctx context.Context) (time.Duration, error) {
	switch {
	case s.trial == 0 && !s.both():
		return 0, nil
	case s.trial == 0:
		return s.guarded(), nil
	case len(s.new)+len(s.old) == 0 || !s.programs():
		return s.trial, nil
	}
	ends := s.begin.Add(s.trial)
	if time.Since(s.begin) > startSlack {
		var err error
		if ends, err = s.hold(ctx, 0); err != nil {
			return 0, err
		}
	}
	return max(time.Until(ends)-ahead, ahead), nil
}

// Steps that take longer than startSlack use up time of the trial, and are repeated with more time, so often at most.
const (
	startSlack = 300 * time.Millisecond
	startTries = 5
)

// hold has the new rulesets decide until the time of a trial and more has passed, and returns when the first of them may stop. On
// a machine that is slow it adds what the next steps may take.
func (s *switchover) hold(ctx context.Context, more time.Duration) (ends time.Time, err error) {
	for range startTries {
		began := time.Now()
		for _, p := range s.manifest.AllRulesets() {
			if err := s.tools[p.Kind].Renew(ctx, p.Name, s.trial+more); err != nil {
				return ends, err
			}
		}
		ends = began.Add(s.trial + more)
		took := time.Since(began)
		if took <= startSlack+more/4 {
			break
		}
		more = max(more, 4*took)
	}
	return ends, nil
}

// start has the new policy decide alone, now that all of it is in force. With a trial, the time begins.
func (s *switchover) start(ctx context.Context) error {
	if s.trial == 0 || len(s.new)+len(s.old) == 0 {
		return s.succeed(ctx)
	}
	var more time.Duration
	for range startTries {
		ends, err := s.hold(ctx, more)
		if err == nil {
			err = s.restart(time.Until(ends) - ahead)
		}
		if err != nil {
			return err
		}
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

// startTrial begins a trial, while all that is new decides for longer than the steps take. Wherever the process dies, the old
// rulesets decide again before the new program returns, and that before the new rulesets become inert: at no moment does nobody
// decide, and the old policy is whole in the end.
func (s *switchover) startTrial(ctx context.Context, trial time.Duration) error {
	for _, p := range s.manifest.AllRulesets() {
		old := s.old[p.Kind]
		if old == nil {
			continue
		}
		if err := s.tools[p.Kind].SetAside(ctx, p.Name, old.Name, trial); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := s.restart(trial - ahead); err != nil {
		return err
	}
	for _, p := range s.manifest.AllRulesets() {
		left := max(time.Until(began.Add(trial)), ahead)
		if err := s.tools[p.Kind].Renew(ctx, p.Name, left); err != nil {
			return err
		}
	}
	return nil
}

// restart counts the time of the programs' trial anew, if they have one.
func (s *switchover) restart(left time.Duration) error {
	if !s.programs() {
		return nil
	}
	if err := s.running.state.RestartTrial(max(left, ahead)); !errors.Is(err, datapath.ErrNoTrial) {
		return err
	}
	return nil
}

// succeed sets the old rulesets aside when rules have moved and XDP has changed, until the move is done.
func (s *switchover) succeed(ctx context.Context) error {
	if s.move == nil || !s.programs() {
		return nil
	}
	for _, p := range s.manifest.AllRulesets() { // one that stands in, and so leaves nobody deciding, comes last
		if err := s.tools[p.Kind].Succeed(ctx, p.Name, nameOf(s.old[p.Kind]), s.guarded()); err != nil {
			return err
		}
	}
	return nil
}
