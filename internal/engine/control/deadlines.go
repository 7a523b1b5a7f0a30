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

// hold extends the time for which the new rulesets decide to at least length from now on.
func (t *transaction) hold(ctx context.Context, length time.Duration) (ends time.Time, err error) {
	ends = time.Now().Add(length)
	return ends, t.onRulesets(ctx, t.rulesets, func(tool netfilter.Tool, p *netfilter.Ruleset) error { return tool.Renew(ctx, p.Name, length) })
}

// Steps that take longer than startSlack use up time of the trial. They are repeated with more time, up to this often.
const (
	startSlack = 300 * time.Millisecond
	startTries = 5
)

// start puts the new policy in force alone, now that all of it is loaded. With a trial, its time begins. After a move that changed XDP, the
// old rulesets rest until the move is done.
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

// startTrial begins a trial, or begins it anew.
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

// eachOld calls fn for the old rulesets, each with the new one that takes its place. One that only stands in, and so leaves nobody
// deciding, comes last.
func (t *transaction) eachOld(ctx context.Context, fn func(tool netfilter.Tool, name, old string) error) error {
	return t.onRulesets(ctx, t.rulesets, func(tool netfilter.Tool, p *netfilter.Ruleset) error {
		if old := t.old[p.Kind]; old != nil {
			return fn(tool, p.Name, old.Name)
		}
		return nil
	})
}

// restart gives the programs' trial another deadline, if they have one.
func (t *transaction) restart(ends time.Time) error {
	if !t.programs() {
		return nil
	}
	if err := t.state.RestartTrial(ends); !errors.Is(err, datapath.ErrNoTrial) {
		return err
	}
	return nil
}
