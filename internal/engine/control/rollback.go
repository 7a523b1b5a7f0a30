package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/policy"
)

// PreviousError says why Rollback cannot return to the policy before.
type PreviousError struct{ Cause, Remedy string }

func (e *PreviousError) Error() string { return e.Cause }

// Hint is the remedy.
func (e *PreviousError) Hint() string { return e.Remedy }

// Rollback returns to the policy before: that of a trial, or the one that ran before the last apply.
func (in Instance) Rollback(ctx context.Context) (now Now, err error) {
	err = in.change(ctx, func(l *live) error {
		ctx := context.WithoutCancel(ctx)
		if l.Trial != nil {
			return l.giveUp(ctx)
		}
		if ended, err := l.endedTrial(ctx); ended > 0 || err != nil { // the kernel has gone back by itself
			return errors.Join(err, l.settle(ctx, in, ended), l.State.RemoveIfEmpty())
		}
		if err := l.mend(ctx, in, true); err != nil {
			return err
		}
		return l.back(ctx, in)
	})
	if err != nil {
		return Now{}, err
	}
	l, err := generation.Find(ctx, in.Dir)
	if errors.Is(err, datapath.ErrNotLoaded) {
		return Now{}, nil
	}
	if err != nil {
		return Now{}, err
	}
	defer l.Close()
	return nowOf(l.Generations[0]), nil
}

// giveUp ends a trial before its time.
func (l *live) giveUp(ctx context.Context) error {
	g := l.Generations[0]
	var now *manifest.Manifest
	if base := l.Base(); base != nil {
		now = base.Manifest
	}
	if err := windDown(ctx, g, now); err != nil {
		return err
	}
	for _, p := range g.Manifest.AllRulesets() { // the old rulesets decide first, and the new ones until XDP has gone back
		t, err := l.Tool(ctx, p.Kind)
		if err == nil {
			err = t.Release(ctx, p.Name, nameOf(l.rulesetBefore(p.Kind)))
		}
		if err != nil {
			return err
		}
	}
	errs := []error{rejoin(l.Base())}
	trial, err := l.State.Trial()
	if errs = append(errs, err); trial != nil {
		errs = append(errs, l.State.Rollback())
	}
	for _, p := range g.Manifest.AllRulesets() {
		errs = append(errs, l.Tools[p.Kind].Rollback(ctx, p.Name, nameOf(l.rulesetBefore(p.Kind))))
	}
	if g.Program == nil {
		errs = append(errs, removeRecord(l.State, g.Number))
	}
	return errors.Join(append(errs, strictFor(l.State, now), l.State.RemoveIfEmpty())...)
}

// removeRecord removes a record that may have gone with its trial.
func removeRecord(s *datapath.State, number int) error {
	records, err := s.Records()
	for _, r := range records {
		if r.Number == number {
			return s.RemoveRecord(number)
		}
	}
	return err
}

// back returns from a confirmed policy to the one before it.
func (l *live) back(ctx context.Context, in Instance) error {
	now := l.Generations[0]
	before, err := l.previous(now)
	if err != nil {
		return err
	}
	if l.carryTemporary(now, before) == nil {
		before.Close()
		if before, err = l.previous(now); err != nil {
			return err
		}
	}
	defer before.Close()
	bans, err := l.bansBack(ctx, now, before)
	if err != nil {
		return err
	}
	if err := windDown(ctx, now, before.Manifest); err != nil {
		return err
	}
	var how netfilter.Loading // without XDP one step does it
	if now.Program != nil {
		how = netfilter.Loading{Trial: handOver, Beside: true}
	}
	var loaded []*netfilter.Ruleset
	err = strictly(l.State, before.Manifest, func() (err error) {
		loaded, err = l.reload(ctx, now, before, bans, how)
		return err
	})
	if err != nil {
		return errors.Join(err, l.unload(ctx, now, loaded))
	}
	err = before.Hold(bans)
	if err == nil { // the host's addresses may have changed since
		_, _, err = before.RefreshLocal()
	}
	if err != nil {
		return errors.Join(err, l.unload(ctx, now, loaded))
	}
	for _, p := range loaded {
		if err := l.Tools[p.Kind].Keep(ctx, p.Name); err != nil {
			return errors.Join(err, l.unload(ctx, now, loaded))
		}
	}
	known := rejoin(before)
	if now.Program != nil {
		if err := l.State.Rollback(); err != nil {
			return errors.Join(err, l.unload(ctx, now, loaded))
		}
	}
	err = l.settleBack(ctx, now, before)
	if err == nil && before.Program == nil {
		err = l.State.Stands(before.Number)
	}
	if err == nil {
		return errors.Join(strictFor(l.State, before.Manifest), known)
	}
	if now.Program != nil {
		err = errors.Join(err, l.State.Rollback()) // the two exchange their roles once more
	}
	return errors.Join(err, l.unload(ctx, now, loaded))
}

// bansBack are the bans in force, for the sets of the generation before. Where its sets are smaller, entries of programs give way as they
// do when a set is full.
func (l *live) bansBack(ctx context.Context, now, before *generation.Generation) (map[string][]ban.Blocked, error) {
	bans, err := l.BansFor(ctx, now, before)
	if err != nil {
		return nil, err
	}
	for _, e := range before.Manifest.Sets {
		list := ban.MostOf(bans[e.Name], e.Max)
		if len(list) > e.Max {
			return nil, &PreviousError{
				fmt.Sprintf("set %q has %d entries that people made, and that of the previous policy, %s, has space for %d", e.Name, len(list), before.Manifest.File, e.Max),
				fmt.Sprintf("unblock some, or raise the set's max in %s and apply that", before.Manifest.File),
			}
		}
		if _, ok := bans[e.Name]; ok {
			bans[e.Name] = list
		}
	}
	return bans, nil
}

// carryTemporary has the program of the generation before drop by the temporary rules that are in force now, so that there is no moment
// without them. That of netfilter is a ruleset of its own, which stays. When it returns an error nothing has changed, and the rules have to be put
// into what runs afterwards.
func (l *live) carryTemporary(now, before *generation.Generation) error {
	if before.Program == nil {
		return nil
	}
	m := *before.Manifest
	m.Temporary = manifest.InForce(now.Manifest.Temporary, time.Now())
	if slices.EqualFunc(m.Temporary, before.Manifest.Temporary, manifest.Temporary.Equal) {
		return nil
	}
	c, err := readSource(l.State, before)
	if err != nil {
		return err
	}
	if c == nil {
		return errNoSource
	}
	return l.renew(before, c, &m, nil)
}

// reload loads the rulesets of the generation before, as far as that goes.
func (l *live) reload(ctx context.Context, now, before *generation.Generation, bans map[string][]ban.Blocked, how netfilter.Loading) (loaded []*netfilter.Ruleset, err error) {
	for _, p := range before.Manifest.Rulesets {
		t, err := l.Tool(ctx, p.Kind)
		if err == nil {
			err = l.refill(before, p, bans)
		}
		if err == nil {
			err = t.Load(ctx, p, nameOf(now.Manifest.RulesetOf(p.Kind)), how)
		}
		if err != nil {
			return loaded, err
		}
		loaded = append(loaded, p)
	}
	return loaded, nil
}

// unload takes back rulesets that were loaded for a rollback that went no further.
func (l *live) unload(ctx context.Context, now *generation.Generation, rulesets []*netfilter.Ruleset) (err error) {
	for _, p := range rulesets {
		err = errors.Join(err, l.Tools[p.Kind].Rollback(ctx, p.Name, nameOf(now.Manifest.RulesetOf(p.Kind))))
	}
	return errors.Join(err, strictFor(l.State, now.Manifest))
}

// settleBack removes the rulesets that do not decide any more.
func (l *live) settleBack(ctx context.Context, now, before *generation.Generation) error {
	for _, p := range before.Manifest.Rulesets {
		if err := confirmed(l.Tools[p.Kind].Finish(ctx, p.Name, nameOf(now.Manifest.RulesetOf(p.Kind)))); err != nil {
			return err
		}
	}
	for _, p := range now.Manifest.Rulesets {
		if before.Manifest.RulesetOf(p.Kind) != nil {
			continue
		}
		t, err := l.Tool(ctx, p.Kind)
		if err == nil {
			err = t.Remove(ctx, p.Name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// previous is the generation before the one that runs.
func (l *live) previous(now *generation.Generation) (*generation.Generation, error) {
	if p, err := l.previousProgram(now); p != nil || err != nil {
		return p, err
	}
	records, err := l.State.Records()
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if r.Number == now.Number || !r.Took {
			continue
		}
		m, err := manifest.Read(r.Number, r.Manifest)
		if err != nil {
			return nil, err
		}
		if m.Target != now.Manifest.Target {
			return nil, l.otherTarget(now.Manifest, m)
		}
		return &generation.Generation{Number: r.Number, Manifest: m}, nil
	}
	return nil, datapath.ErrNoPrevious
}

// previousProgram is the generation before if that has an XDP program, else nil. Without one now, it is an error.
func (l *live) previousProgram(now *generation.Generation) (*generation.Generation, error) {
	find := l.State.Previous
	if now.Program == nil {
		find = func() (*datapath.Generation, error) { return l.State.Before(now.Number) }
	}
	p, err := find()
	if p == nil || err != nil {
		return nil, err
	}
	g, err := generation.OfProgram(p)
	if err != nil || now.Program != nil {
		return g, err
	}
	defer g.Close()
	return nil, l.otherTarget(now.Manifest, g.Manifest)
}

func (l *live) otherTarget(now, before *manifest.Manifest) error {
	again := before.File
	if again == policy.Stdin {
		again = "POLICY"
	}
	return &PreviousError{
		fmt.Sprintf("the previous policy, %s, ran on target %s, and this one runs on %s", before.File, before.Target, now.Target),
		fmt.Sprintf("`floodwall apply --target %s %s` applies it again", before.Target, again),
	}
}
