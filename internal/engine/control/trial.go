package control

import (
	"context"
	"errors"
	"time"

	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/engine/statedir"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// Now is the policy that runs after Confirm or Rollback.
type Now struct {
	Generation int      `json:"generation"` // 0 when nothing runs any more
	Policy     string   `json:"policy"`
	Devices    []string `json:"devices"`
	Boot       string   `json:"-"` // as in ApplyOptions
}

func nowOf(g *generation.Generation) Now {
	return Now{g.Number, g.Manifest.File, g.Manifest.Devices, g.Manifest.Boot}
}

// tooLate is the time before the end of a trial in which it is not confirmed any more: its steps could fall on both sides of the end.
const tooLate = 300 * time.Millisecond

// change runs fn under the lock, on the policy that runs. It returns datapath.ErrNotLoaded if nothing runs.
func (in Instance) change(ctx context.Context, fn func(*live) error) error {
	return in.locked(ctx, func(state *datapath.State) error {
		l, err := openLive(ctx, state)
		if err != nil {
			return err
		}
		defer l.Close()
		if err := statedir.Check(in.Dir, in.State); err != nil {
			return err
		}
		return fn(l)
	})
}

// locked runs fn with the lock. It returns datapath.ErrNotLoaded when there is no state.
func (in Instance) locked(ctx context.Context, fn func(*datapath.State) error) error {
	state, err := datapath.OpenState(in.Dir, false)
	if err != nil {
		return err
	}
	unlock, err := lock(ctx, state)
	if err != nil {
		return err
	}
	defer unlock()
	return fn(state)
}

// Confirm keeps the policy that is on trial. It returns datapath.ErrNoTrial when none is, and datapath.ErrExpired when
// it is too late: then the policy before is in force again.
func (in Instance) Confirm(ctx context.Context) (now Now, err error) {
	err = in.change(ctx, func(l *live) error {
		g := l.Generations[0]
		now = nowOf(g)
		switch {
		case l.Trial == nil:
			return l.noTrial()
		case l.Trial.Left < tooLate:
			return datapath.ErrExpired
		}
		return l.confirm(context.WithoutCancel(ctx))
	})
	return now, err
}

// noTrial tells a trial that expired from none at all.
func (l *live) noTrial() error {
	t, err := l.State.Trial()
	if err == nil && t != nil {
		return datapath.ErrExpired
	}
	for k, tl := range l.Tools {
		if p := l.Generations[0].Manifest.RulesetOf(k); p != nil {
			if _, state, err := tl.Trial(context.Background(), p.Name); err == nil && state == netfilter.Returned {
				return datapath.ErrExpired
			}
		}
	}
	return errors.Join(err, datapath.ErrNoTrial)
}

// confirm keeps the newest generation: first its rulesets in netfilter, which can refuse, then XDP. What rested during the trial is removed
// last. So wherever this ends, no packet passes that both policies drop.
func (l *live) confirm(ctx context.Context) error {
	g := l.Generations[0]
	both := g.Program != nil || l.Standby != nil && l.Standby.Program != nil
	for _, p := range g.Manifest.AllRulesets() {
		t, err := l.Tool(ctx, p.Kind)
		switch {
		case err != nil:
		case both:
			err = t.Keep(ctx, p.Name)
		default: // netfilter alone, which does it in one step
			err = confirmed(t.Confirm(ctx, p.Name, nameOf(l.rulesetBefore(p.Kind))))
		}
		var late *netfilter.ExpiredError
		if errors.As(err, &late) {
			return datapath.ErrExpired
		}
		if err != nil {
			return err
		}
	}
	err := l.State.Confirm()
	if errors.Is(err, datapath.ErrNoTrial) && g.Program == nil {
		err = nil // the trial was netfilter's alone
	}
	if err == nil && g.Program == nil {
		err = errors.Join(l.State.Took(g.Number), l.State.Stands(g.Number))
	}
	if err != nil {
		return err
	}
	var errs []error
	if both {
		for _, p := range g.Manifest.AllRulesets() {
			errs = append(errs, confirmed(l.Tools[p.Kind].Finish(ctx, p.Name, nameOf(l.rulesetBefore(p.Kind)))))
		}
	}
	return errors.Join(append(errs, dropStandIns(ctx, l.Tools, g.Manifest), forget(l.State, g.Number, l.Trial.Old), strictFor(l.State, g.Manifest))...)
}

// rulesetBefore is the ruleset, of the generation before, that rests during the trial.
func (l *live) rulesetBefore(k netfilter.Kind) *netfilter.Ruleset {
	if l.Standby == nil {
		return nil
	}
	return l.Standby.Manifest.RulesetOf(k)
}

// dropStandIns removes the rulesets that decide nothing and only kept others at rest.
func dropStandIns(ctx context.Context, tools map[netfilter.Kind]netfilter.Tool, m *manifest.Manifest) (err error) {
	for _, p := range m.StandIn {
		err = errors.Join(err, tools[p.Kind].Remove(ctx, p.Name))
	}
	return err
}

// forget removes the records of all generations but one and the one before it, to which Rollback returns; 0 is none.
func forget(s *datapath.State, number, before int) error {
	records, err := s.Records()
	errs := []error{err}
	for _, r := range records {
		if r.Number != number && r.Number != before {
			errs = append(errs, s.RemoveRecord(r.Number))
		}
	}
	return errors.Join(errs...)
}

// Settle removes what an unconfirmed trial has left: the kernel has returned to the policy before by itself. It returns
// the generation that was on trial, 0 when there is nothing to settle.
func (in Instance) Settle(ctx context.Context) (number int, err error) {
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

// sweep removes the remains of a trial that was not confirmed, and completes the change of a command that died. It returns the generation
// that was on trial, 0 for none. With restore it also puts back what other tools have removed from netfilter.
func (in Instance) sweep(ctx context.Context, state *datapath.State, restore bool) (number int, err error) {
	ctx = context.WithoutCancel(ctx)
	l, err := openAny(ctx, state)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	number, err = l.endedTrial(ctx)
	switch {
	case err != nil:
		return 0, err
	case number > 0:
		return number, l.settle(ctx, in, number)
	}
	return 0, l.mend(ctx, in, restore)
}

// endedTrial is the generation whose trial ended unconfirmed and has left remains, 0 when there is none.
func (l *live) endedTrial(ctx context.Context) (number int, err error) {
	t, err := l.State.Trial()
	if err != nil {
		return 0, err
	}
	if t != nil && t.Expired() {
		number = t.New
	}
	records, err := l.State.Records()
	if err != nil {
		return 0, err
	}
	for _, r := range records {
		inert, err := l.ended(ctx, r)
		if err != nil {
			return 0, err
		}
		if inert {
			number = r.Number
		}
	}
	return number, nil
}

// ended reports whether a record is of a policy whose trial ended unconfirmed.
func (l *live) ended(ctx context.Context, r *datapath.Record) (bool, error) {
	m, err := manifest.Read(r.Number, r.Manifest)
	if err != nil || m.Ruleset() == nil || r.Took { // one that took effect and does nothing was changed by others
		return false, err
	}
	t, err := l.Tool(ctx, m.Ruleset().Kind)
	if err != nil {
		return false, err
	}
	_, state, err := t.Trial(ctx, m.Ruleset().Name)
	return state == netfilter.Inert, err
}

// settle removes the remains of a trial.
func (l *live) settle(ctx context.Context, in Instance, number int) error {
	var keep []string
	for _, g := range l.All() {
		for _, p := range l.Rulesets(g) {
			keep = append(keep, p.Name)
		}
	}
	var errs []error
	for _, k := range []netfilter.Kind{netfilter.KindNft, netfilter.KindIptables} {
		if _, err := l.Tool(ctx, k); err == nil {
			errs = append(errs, in.clean(ctx, k, keep...))
		}
	}
	errs = append(errs, rejoin(l.Base()), l.State.Settle(), removeRecord(l.State, number)) // devices return first: they know the trial by its number
	return errors.Join(append(errs, strictFor(l.State, l.Manifests()...))...)
}
