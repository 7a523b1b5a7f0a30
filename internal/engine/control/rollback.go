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
	"github.com/floodwall/floodwall/policy"
)

// PreviousError says why Rollback cannot return to the policy before.
type PreviousError struct{ Cause, Remedy string }

func (e *PreviousError) Error() string { return e.Cause }

// Hint is the remedy.
func (e *PreviousError) Hint() string { return e.Remedy }

// Rollback returns to the policy before: that of a trial, or the one that ran before the last apply.
func (in Instance) Rollback(ctx context.Context) (now Now, err error) {
	err = in.change(ctx, func(t *transaction) error {
		ctx := context.WithoutCancel(ctx)
		if t.live.Trial != nil {
			return t.giveUp(ctx)
		}
		if ended, err := t.endedTrial(ctx); ended > 0 || err != nil { // the kernel has gone back by itself
			return errors.Join(err, t.finishTrial(ctx, ended), t.state.RemoveIfEmpty())
		}
		if err := in.over(t.live).mend(ctx, true); err != nil {
			return err
		}
		return t.back(ctx)
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

// rollBackTrial ends the trial of XDP, if it has one.
func (t *transaction) rollBackTrial(context.Context) error {
	trial, err := t.state.Trial()
	if trial != nil {
		err = errors.Join(err, t.state.Rollback())
	}
	return err
}

// removeIfEmpty removes the state of an instance of which nothing is left.
func (t *transaction) removeIfEmpty(context.Context) error { return t.state.RemoveIfEmpty() }

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

// findBefore finds the policy before. Its rulesets have to be loaded anew.
func (t *transaction) findBefore(context.Context) (err error) {
	if t.next, err = t.previous(); err != nil {
		return err
	}
	t.number, t.manifest, t.rulesets, t.old = t.next.Number, t.next.Manifest, t.next.Manifest.Rulesets, rulesetsOf(t.now)
	return nil
}

// refillRulesets fills the rulesets of the policy before with the bans in force.
func (t *transaction) refillRulesets(context.Context) (err error) {
	for _, p := range t.rulesets {
		if err == nil {
			err = t.refill(t.next, p, t.kept)
		}
	}
	return err
}

// holdBans gives the program before the bans in force.
func (t *transaction) holdBans(context.Context) error { return t.next.Hold(t.kept) }

// refreshNext tells the program before of the host's addresses, which may have changed since.
func (t *transaction) refreshNext(context.Context) error {
	_, _, err := t.next.RefreshLocal()
	return err
}

// switchBack gives the devices the program before.
func (t *transaction) switchBack(context.Context) error {
	if t.now.Program == nil {
		return nil
	}
	err := t.state.Rollback()
	t.switched = err == nil
	return err
}

// switchAgain takes switchBack back: the two exchange their roles once more.
func (t *transaction) switchAgain(context.Context) error {
	if !t.switched {
		return nil
	}
	return t.state.Rollback()
}

// bansBack reads the bans in force, for the sets of the generation before. Where its sets are smaller, entries of programs give way as they
// do when a set is full.
func (t *transaction) bansBack(ctx context.Context) (err error) {
	if t.kept, err = t.live.BansFor(ctx, t.now, t.next); err != nil {
		return err
	}
	for _, e := range t.manifest.Sets {
		list := ban.MostOf(t.kept[e.Name], e.Max)
		if len(list) > e.Max {
			return &PreviousError{
				fmt.Sprintf("set %q has %d entries that people made, and that of the previous policy, %s, has space for %d", e.Name, len(list), t.manifest.File, e.Max),
				fmt.Sprintf("unblock some, or raise the set's max in %s and apply that", t.manifest.File),
			}
		}
		if _, ok := t.kept[e.Name]; ok {
			t.kept[e.Name] = list
		}
	}
	return nil
}

// carryTemporary has the program of the generation before drop by the temporary rules that are in force now, so that there is no moment
// without them. That of netfilter is a ruleset of its own, which stays. When it cannot, nothing has changed, and mend puts the rules into
// what runs afterwards.
func (t *transaction) carryTemporary(ctx context.Context) error {
	m := *t.manifest
	m.Temporary = manifest.InForce(t.now.Manifest.Temporary, time.Now())
	if t.next.Program == nil || slices.EqualFunc(m.Temporary, t.manifest.Temporary, manifest.Temporary.Equal) {
		return nil
	}
	c, err := readSource(t.state, t.next)
	if c == nil || err != nil || t.renew(t.next, c, &m, nil) != nil {
		return nil
	}
	t.next.Close()
	return t.findBefore(ctx)
}

// previous is the generation before the one that runs.
func (t *transaction) previous() (*generation.Generation, error) {
	if p, err := t.previousProgram(); p != nil || err != nil {
		return p, err
	}
	records, err := t.state.Records()
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if r.Number == t.now.Number || !r.Took {
			continue
		}
		m, err := manifest.Read(r.Number, r.Manifest)
		if err != nil {
			return nil, err
		}
		if m.Target != t.now.Manifest.Target {
			return nil, otherTarget(t.now.Manifest, m)
		}
		return &generation.Generation{Number: r.Number, Manifest: m}, nil
	}
	return nil, datapath.ErrNoPrevious
}

// previousProgram is the generation before if that has an XDP program, else nil. Without one now, it is an error.
func (t *transaction) previousProgram() (*generation.Generation, error) {
	find := t.state.Previous
	if t.now.Program == nil {
		find = func() (*datapath.Generation, error) { return t.state.Before(t.now.Number) }
	}
	p, err := find()
	if p == nil || err != nil {
		return nil, err
	}
	g, err := generation.OfProgram(p)
	if err != nil || t.now.Program != nil {
		return g, err
	}
	defer g.Close()
	return nil, otherTarget(t.now.Manifest, g.Manifest)
}

func otherTarget(now, before *manifest.Manifest) error {
	again := before.File
	if again == policy.Stdin {
		again = "POLICY"
	}
	return &PreviousError{
		fmt.Sprintf("the previous policy, %s, ran on target %s, and this one runs on %s", before.File, before.Target, now.Target),
		fmt.Sprintf("`floodwall apply --target %s %s` applies it again", before.Target, again),
	}
}
