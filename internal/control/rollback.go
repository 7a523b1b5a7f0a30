package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/dynamicset"
	"github.com/floodwall/floodwall/internal/manifest"
	"github.com/floodwall/floodwall/internal/ruleset"
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
		if l.trial != nil {
			return l.giveUp(ctx)
		}
		if ended, err := l.endedTrial(ctx); ended > 0 || err != nil { // the kernel has gone back by itself
			return errors.Join(err, l.settle(ctx, in, ended), l.state.RemoveIfEmpty())
		}
		if err := l.mend(ctx, in, true); err != nil {
			return err
		}
		return l.back(ctx, in)
	})
	if err != nil {
		return Now{}, err
	}
	l, err := in.open(ctx)
	if errors.Is(err, datapath.ErrNotLoaded) {
		return Now{}, nil
	}
	if err != nil {
		return Now{}, err
	}
	defer l.close()
	return l.generations[0].now(), nil
}

// giveUp ends a trial before its time.
func (l *live) giveUp(ctx context.Context) error {
	g := l.generations[0]
	var now *manifest.Manifest
	if base := l.base(); base != nil {
		now = base.manifest
	}
	if err := g.windDown(ctx, now); err != nil {
		return err
	}
	for _, p := range g.manifest.AllRulesets() { // the old rulesets decide first, and the new ones until XDP has gone back
		t, err := l.tool(ctx, p.Kind)
		if err == nil {
			err = t.Release(ctx, p.Name, nameOf(l.rulesetBefore(p.Kind)))
		}
		if err != nil {
			return err
		}
	}
	errs := []error{l.base().rejoin()}
	trial, err := l.state.Trial()
	if errs = append(errs, err); trial != nil {
		errs = append(errs, l.state.Rollback())
	}
	for _, p := range g.manifest.AllRulesets() {
		errs = append(errs, l.tools[p.Kind].Rollback(ctx, p.Name, nameOf(l.rulesetBefore(p.Kind))))
	}
	if g.program == nil {
		errs = append(errs, removeRecord(l.state, g.number))
	}
	return errors.Join(append(errs, strictFor(l.state, now), l.state.RemoveIfEmpty())...)
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
	now := l.generations[0]
	before, err := l.previous(now)
	if err != nil {
		return err
	}
	if l.carryTemporary(now, before) == nil {
		before.close()
		if before, err = l.previous(now); err != nil {
			return err
		}
	}
	defer before.close()
	bans, err := l.bansFor(ctx, now, before)
	if err != nil {
		return err
	}
	if err := now.windDown(ctx, before.manifest); err != nil {
		return err
	}
	var how ruleset.Loading // without XDP one step does it
	if now.program != nil {
		how = ruleset.Loading{Trial: handOver, Beside: true}
	}
	var loaded []*ruleset.Ruleset
	err = strictly(l.state, before.manifest, func() (err error) {
		loaded, err = l.reload(ctx, now, before, bans, how)
		return err
	})
	if err != nil {
		return errors.Join(err, l.unload(ctx, now, loaded))
	}
	err = before.enter(ctx, bans)
	if err == nil { // the host's addresses may have changed since
		_, _, err = before.refreshLocal()
	}
	if err != nil {
		return errors.Join(err, l.unload(ctx, now, loaded))
	}
	for _, p := range loaded {
		if err := l.tools[p.Kind].Keep(ctx, p.Name); err != nil {
			return errors.Join(err, l.unload(ctx, now, loaded))
		}
	}
	known := before.rejoin()
	if now.program != nil {
		if err := l.state.Rollback(); err != nil {
			return errors.Join(err, l.unload(ctx, now, loaded))
		}
	}
	err = l.settleBack(ctx, now, before)
	if err == nil && before.program == nil {
		err = l.state.Stands(before.number)
	}
	if err == nil {
		return errors.Join(strictFor(l.state, before.manifest), known)
	}
	if now.program != nil {
		err = errors.Join(err, l.state.Rollback()) // the two exchange their roles once more
	}
	return errors.Join(err, l.unload(ctx, now, loaded))
}

// carryTemporary has the program of the generation before drop by the temporary rules that are in force now, so that there is no moment
// without them. That of netfilter is a ruleset of its own, which stays. When it returns an error nothing has changed, and the rules have to be put
// into what runs afterwards.
func (l *live) carryTemporary(now, before *generation) error {
	if before.program == nil {
		return nil
	}
	m := *before.manifest
	m.Temporary = manifest.InForce(now.manifest.Temporary, time.Now())
	if slices.EqualFunc(m.Temporary, before.manifest.Temporary, manifest.Temporary.Equal) {
		return nil
	}
	c, err := readSource(l.state, before)
	if err != nil {
		return err
	}
	if c == nil {
		return errNoSource
	}
	return l.renew(before, c, &m, nil)
}

// reload loads the rulesets of the generation before, as far as that goes.
func (l *live) reload(ctx context.Context, now, before *generation, bans map[string][]dynamicset.Blocked, how ruleset.Loading) (loaded []*ruleset.Ruleset, err error) {
	for _, p := range before.manifest.Rulesets {
		t, err := l.tool(ctx, p.Kind)
		if err == nil {
			err = l.refill(before, p, bans)
		}
		if err == nil {
			err = t.Load(ctx, p, nameOf(now.manifest.RulesetOf(p.Kind)), how)
		}
		if err != nil {
			return loaded, err
		}
		loaded = append(loaded, p)
	}
	return loaded, nil
}

// bansFor are the bans that the policy before is to have when it runs again.
func (l *live) bansFor(ctx context.Context, now, before *generation) (map[string][]dynamicset.Blocked, error) {
	bans := map[string][]dynamicset.Blocked{}
	for _, e := range before.manifest.Sets {
		was, ok := now.manifest.Set(e.Name)
		if e.Dynamic < 0 || e.Local || !ok || was.Dynamic < 0 {
			continue
		}
		list, err := l.entries(ctx, now, was)
		if err != nil {
			return nil, err
		}
		bans[e.Name] = list
	}
	return bans, nil
}

// enter puts bans into the sets of an XDP program.
func (g *generation) enter(ctx context.Context, bans map[string][]dynamicset.Blocked) error {
	if g.program == nil {
		return nil
	}
	dynamic, err := dynamicset.Open(g.program)
	if err != nil || dynamic == nil {
		return err
	}
	for _, e := range g.manifest.Sets {
		if list := bans[e.Name]; list != nil {
			set := dynamicset.NewXDPSet(dynamic.Sets[e.Dynamic], e)
			if _, err := set.Block(ctx, dynamicset.AsBans(list)); err != nil {
				return err
			}
		}
	}
	return nil
}

// unload takes back rulesets that were loaded for a rollback that went no further.
func (l *live) unload(ctx context.Context, now *generation, rulesets []*ruleset.Ruleset) (err error) {
	for _, p := range rulesets {
		err = errors.Join(err, l.tools[p.Kind].Rollback(ctx, p.Name, nameOf(now.manifest.RulesetOf(p.Kind))))
	}
	return errors.Join(err, strictFor(l.state, now.manifest))
}

// settleBack removes the rulesets that do not decide any more.
func (l *live) settleBack(ctx context.Context, now, before *generation) error {
	for _, p := range before.manifest.Rulesets {
		if err := confirmed(l.tools[p.Kind].Finish(ctx, p.Name, nameOf(now.manifest.RulesetOf(p.Kind)))); err != nil {
			return err
		}
	}
	for _, p := range now.manifest.Rulesets {
		if before.manifest.RulesetOf(p.Kind) != nil {
			continue
		}
		t, err := l.tool(ctx, p.Kind)
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
func (l *live) previous(now *generation) (*generation, error) {
	if p, err := l.previousProgram(now); p != nil || err != nil {
		return p, err
	}
	records, err := l.state.Records()
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if r.Number == now.number || !r.Took {
			continue
		}
		m, err := manifest.Read(r.Number, r.Manifest)
		if err != nil {
			return nil, err
		}
		if m.Target != now.manifest.Target {
			return nil, l.otherTarget(now.manifest, m)
		}
		return &generation{number: r.Number, manifest: m}, nil
	}
	return nil, datapath.ErrNoPrevious
}

// previousProgram is the generation before if that has an XDP program, else nil. Without one now, it is an error.
func (l *live) previousProgram(now *generation) (*generation, error) {
	find := l.state.Previous
	if now.program == nil {
		find = l.state.Latest
	}
	p, err := find()
	if p == nil || err != nil {
		return nil, err
	}
	g, err := ofProgram(p)
	if err != nil || now.program != nil {
		return g, err
	}
	defer g.close()
	return nil, l.otherTarget(now.manifest, g.manifest)
}

func (l *live) otherTarget(now, before *manifest.Manifest) error {
	return &PreviousError{
		fmt.Sprintf("the previous policy, %s, ran on target %s, and this one runs on %s", before.File, before.Target, now.Target),
		fmt.Sprintf("`floodwall apply --target %s %s` applies it again", before.Target, before.File),
	}
}
