// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"time"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// The deadlines of a change have an order. First the old rulesets in netfilter decide again. Then XDP returns to the previous policy. Then the new
// rulesets become inert. So a packet that both policies drop is dropped at every moment. The deadlines are set in the reverse order, the last one
// first. The first one takes effect only when all are set, because the process may be killed or delayed between any two steps.

// ahead is the time between the return of XDP and the later moment at which the new rulesets in netfilter become inert.
const ahead = 300 * time.Millisecond

// programEnds returns the time at which the previous program returns, unless the new one is confirmed. It returns the zero time for never. Until
// start has set the time of a trial, the program ends shortly before the new rulesets become inert.
func (t *transaction) programEnds(ctx context.Context) (ends time.Time, err error) {
	switch {
	case t.trial == 0 && !t.both():
		return ends, nil
	case len(t.rulesets)+len(t.old) == 0 || !t.programs():
		return time.Now().Add(t.trial), nil
	}
	ends = t.begin.Add(t.guarded())
	if time.Until(ends) < t.guarded()/2 { // this machine is slow
		ends, err = t.hold(ctx, t.guarded())
	}
	return ends.Add(-ahead), err
}

// hold makes the new rulesets decide for at least length from now.
func (t *transaction) hold(ctx context.Context, length time.Duration) (ends time.Time, err error) {
	ends = time.Now().Add(length)
	return ends, t.onRulesets(ctx, t.rulesets, func(tool netfilter.Tool, p *netfilter.Ruleset) error { return tool.Renew(ctx, p.Name, length) })
}

// If a step takes longer than startSlack, it uses up time of the trial. The steps are then repeated with more time, up to startTries times.
const (
	startSlack = 300 * time.Millisecond
	startTries = 5
)

// start puts the new policy in force alone, after all its parts were loaded. With a trial, the time of the trial starts now. After a move that
// changed XDP, the old rulesets are inactive until the move is complete.
func (t *transaction) start(ctx context.Context) error {
	switch {
	case t.trial == 0 && (t.move == nil || !t.programs()):
		return nil
	case t.trial == 0:
		return t.startTrial(ctx, t.guarded())
	case len(t.rulesets)+len(t.old) == 0:
		return t.restart(time.Now().Add(t.trial))
	}
	var more time.Duration
	for range startTries {
		began := time.Now()
		if err := t.startTrial(ctx, t.trial+more); err != nil {
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

// startTrial starts a trial, or starts its time again.
func (t *transaction) startTrial(ctx context.Context, length time.Duration) error {
	err := t.eachOld(ctx, func(tool netfilter.Tool, name, old string) error { return tool.SetReturn(ctx, name, old, length) })
	if err != nil {
		return err
	}
	ends, err := t.hold(ctx, length)
	if err == nil {
		err = t.restart(ends.Add(-ahead))
	}
	if err != nil {
		return err
	}
	return t.eachOld(ctx, func(tool netfilter.Tool, name, old string) error { return tool.SetAside(ctx, name, old) })
}

// eachOld calls fn for each old ruleset, with the new ruleset that replaces it. A new ruleset that is only a stand-in comes last, because after its
// call neither of the two decides.
func (t *transaction) eachOld(ctx context.Context, fn func(tool netfilter.Tool, name, old string) error) error {
	return t.onRulesets(ctx, t.rulesets, func(tool netfilter.Tool, p *netfilter.Ruleset) error {
		if old := t.old[p.Kind]; old != nil {
			return fn(tool, p.Name, old.Name)
		}
		return nil
	})
}

// restart changes the deadline of the trial in XDP, if there is a trial.
func (t *transaction) restart(ends time.Time) error {
	if !t.programs() {
		return nil
	}
	if err := t.state.RestartTrial(ends); !errors.Is(err, datapath.ErrNoTrial) {
		return err
	}
	return nil
}
