// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"time"

	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// Now is the policy that runs after Confirm or Rollback.
type Now struct {
	Generation int      `json:"generation"` // 0 when no policy runs any more
	Policy     string   `json:"policy"`
	Devices    []string `json:"devices"`
	Boot       string   `json:"-"` // as in ApplyOptions
}

func nowOf(g *generation.Generation) Now {
	return Now{g.Number, g.Manifest.File, g.Manifest.Devices, g.Manifest.Boot}
}

// tooLate is the time before the end of a trial in which Confirm refuses, because some of its steps could fall after the end.
const tooLate = 300 * time.Millisecond

// Confirm makes the policy on trial permanent. It returns datapath.ErrNoTrial when no policy is on trial. It returns datapath.ErrExpired when it is
// too late and the previous policy is in force again. If a trial has timed out, Confirm returns an *EndedError, also when the trial's remains are
// gone. The cause of the *EndedError is ErrNoTrial, ErrExpired or datapath.ErrNotLoaded.
func (in Instance) Confirm(ctx context.Context) (now Now, err error) {
	err = in.change(ctx, func(t *transaction) error {
		now = nowOf(t.now)
		switch {
		case t.live.Trial == nil:
			return t.noTrial()
		case t.live.Trial.Left < tooLate:
			return datapath.ErrExpired
		}
		return t.confirm(context.WithoutCancel(ctx))
	})
	if errors.Is(err, datapath.ErrExpired) || errors.Is(err, datapath.ErrNotLoaded) {
		_, _ = in.FinishTrial(ctx) // FinishTrial records which trial has ended; the next change reports parts that FinishTrial could not remove
	}
	if errors.Is(err, datapath.ErrNoTrial) || errors.Is(err, datapath.ErrExpired) || errors.Is(err, datapath.ErrNotLoaded) {
		err = in.ended(ctx, err)
	}
	return now, err
}

// noTrial returns datapath.ErrExpired if a trial has timed out, and datapath.ErrNoTrial if there is none.
func (t *transaction) noTrial() error {
	of, err := t.state.Trial()
	if err == nil && of != nil {
		return datapath.ErrExpired
	}
	for k, tool := range t.live.Tools {
		if p := t.now.Manifest.RulesetOf(k); p != nil {
			if _, state, err := tool.Trial(context.Background(), p.Name); err == nil && state == netfilter.Returned {
				return datapath.ErrExpired
			}
		}
	}
	return errors.Join(err, datapath.ErrNoTrial)
}

// confirmRulesets makes the rulesets on trial permanent. If XDP takes part in the change, the old rulesets also stay for now, because the
// confirmation in XDP can still fail.
func (t *transaction) confirmRulesets(ctx context.Context) error {
	return t.onRulesets(ctx, t.rulesets, func(tool netfilter.Tool, p *netfilter.Ruleset) (err error) {
		if t.programs() {
			err = tool.Keep(ctx, p.Name)
		} else { // netfilter only: one step is enough
			err = exceptRemains(tool.Confirm(ctx, p.Name, nameOf(t.old[p.Kind])))
		}
		if errors.As(err, new(*netfilter.ExpiredError)) {
			return datapath.ErrExpired
		}
		return err
	})
}

// FinishTrial removes the remains of an unconfirmed trial. The kernel has already returned to the previous policy. FinishTrial returns the number of
// the generation that was on trial, or 0 when there is nothing to remove.
func (in Instance) FinishTrial(ctx context.Context) (number int, err error) {
	err = in.locked(ctx, func(state *datapath.State) error {
		if number, err = in.sweep(ctx, state, false); number == 0 || err != nil {
			return err
		}
		return state.RemoveIfEmpty()
	})
	if errors.Is(err, datapath.ErrNotLoaded) {
		return 0, nil
	}
	return number, err
}

// sweep removes the remains of a trial that timed out. If there are none, it completes or undoes the change of a command that died. It returns the
// number of the generation that was on trial, 0 for none. If restore is true, it also restores rulesets that other tools have removed from netfilter.
func (in Instance) sweep(ctx context.Context, state *datapath.State, restore bool) (number int, err error) {
	ctx = context.WithoutCancel(ctx)
	l, err := generation.OpenAny(ctx, state)
	if err != nil {
		return 0, err
	}
	t := in.over(l)
	defer t.close()
	number, err = t.endedTrial(ctx)
	switch {
	case err != nil:
		return 0, err
	case number > 0:
		return number, t.finishTrial(ctx, number)
	}
	return 0, t.mend(ctx, restore)
}

// endedTrial returns the number of the generation whose trial timed out and has left remains. It returns 0 when there is none.
func (t *transaction) endedTrial(ctx context.Context) (number int, err error) {
	of, err := t.state.Trial()
	if err != nil {
		return 0, err
	}
	if of != nil && of.Expired() {
		number = of.New
	}
	records, err := t.state.Records()
	if err != nil {
		return 0, err
	}
	for _, r := range records {
		inert, err := t.endedRecord(ctx, r)
		if err != nil {
			return 0, err
		}
		if inert {
			number = r.Number
		}
	}
	return number, nil
}

// endedRecord reports whether a record belongs to a policy whose trial ended unconfirmed.
func (t *transaction) endedRecord(ctx context.Context, r *datapath.Record) (bool, error) {
	m, err := manifest.Read(r.Number, r.Manifest)
	if err != nil || m.Ruleset() == nil || r.Took { // r.Took: the policy was in force; if it is inert now, other tools have changed it
		return false, err
	}
	tool, err := t.live.Tool(ctx, m.Ruleset().Kind)
	if err != nil {
		return false, err
	}
	_, state, err := tool.Trial(ctx, m.Ruleset().Name)
	return state == netfilter.Inert, err
}

// awaitEnd waits until the rulesets of the ended trial decide no more. Their deadline is a moment after that of XDP (deadlines.go).
func (t *transaction) awaitEnd(ctx context.Context) error {
	for _, g := range t.live.All() {
		p := g.Manifest.Ruleset()
		if g.Number != t.tried || p == nil {
			continue
		}
		tool, err := t.live.Tool(ctx, p.Kind)
		if err != nil {
			return err
		}
		left, state, err := tool.Trial(ctx, p.Name)
		if err != nil {
			return err
		}
		if state.Decides() {
			time.Sleep(min(left, time.Second))
		}
	}
	return nil
}

// cleanRulesets removes all rulesets except those of the generations that run without the ended trial.
func (t *transaction) cleanRulesets(ctx context.Context) error {
	var keep []string
	for _, g := range t.live.All() {
		if g.Number != t.tried {
			keep = append(keep, namesOf(t.live.Rulesets(g))...)
		}
	}
	var errs []error
	for _, k := range []netfilter.Kind{netfilter.KindNft, netfilter.KindIptables} {
		errs = append(errs, t.in.clean(ctx, k, keep...))
	}
	return errors.Join(errs...)
}

// detachTrial attaches the program of the generation in force to the devices.
func (t *transaction) detachTrial(context.Context) error { return t.state.FinishTrial() }
