// SPDX-License-Identifier: Apache-2.0

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

// PreviousError says why Rollback cannot return to the previous policy.
type PreviousError struct{ Cause, Remedy string }

func (e *PreviousError) Error() string { return e.Cause }

// Hint is the remedy.
func (e *PreviousError) Hint() string { return e.Remedy }

// Rollback returns to the previous policy. During a trial this is the policy before the trial, else the policy before the last apply.
func (in Instance) Rollback(ctx context.Context) (now Now, err error) {
	err = in.change(ctx, func(t *transaction) error {
		ctx := context.WithoutCancel(ctx)
		if t.live.Trial != nil {
			return t.giveUp(ctx)
		}
		if ended, err := t.endedTrial(ctx); ended > 0 || err != nil { // the kernel has already returned to the previous policy
			return errors.Join(err, t.finishTrial(ctx, ended), t.state.RemoveIfEmpty())
		}
		if in.only != "" { // the policy was confirmed since the caller looked
			return datapath.ErrNoTrial
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

// rollBackTrial ends the trial of XDP, if there is one.
func (t *transaction) rollBackTrial(context.Context) error {
	trial, err := t.state.Trial()
	if trial != nil {
		err = errors.Join(err, t.state.Rollback())
	}
	return err
}

// removeIfEmpty removes the state of an instance if nothing of the instance is left.
func (t *transaction) removeIfEmpty(context.Context) error { return t.state.RemoveIfEmpty() }

// removeRecord removes the record of a generation. It returns nil if there is no such record: the end of the trial may have removed it.
func removeRecord(s *datapath.State, number int) error {
	records, err := s.Records()
	for _, r := range records {
		if r.Number == number {
			return s.RemoveRecord(number)
		}
	}
	return err
}

// findBefore finds the previous policy. Its rulesets must be loaded again, so findBefore sets them as the rulesets to load.
func (t *transaction) findBefore(context.Context) (err error) {
	if t.next, err = t.previous(); err != nil {
		return err
	}
	t.number, t.manifest, t.rulesets, t.old = t.next.Number, t.next.Manifest, t.next.Manifest.Rulesets, rulesetsOf(t.now)
	return nil
}

// refillRulesets adds the bans in force to the rulesets of the previous policy.
func (t *transaction) refillRulesets(context.Context) (err error) {
	for _, p := range t.rulesets {
		if err == nil {
			err = t.refill(t.next, p, t.kept)
		}
	}
	return err
}

// holdBans replaces the bans of the previous program by the bans in force.
func (t *transaction) holdBans(context.Context) error { return t.next.Hold(t.kept) }

// refreshNext updates the host's addresses in the previous program. The addresses may have changed since that program ran.
func (t *transaction) refreshNext(context.Context) error {
	_, _, err := t.next.RefreshLocal()
	return err
}

// switchBack attaches the previous program to the devices.
func (t *transaction) switchBack(context.Context) error {
	if t.now.Program == nil {
		return nil
	}
	err := t.state.Rollback()
	t.switched = err == nil
	return err
}

// switchAgain undoes switchBack: the two programs exchange their roles again.
func (t *transaction) switchAgain(context.Context) error {
	if !t.switched {
		return nil
	}
	return t.state.Rollback()
}

// bansBack reads the bans in force for the sets of the previous generation. If such a set is smaller, entries of programs are left out, in the order
// in which a full set evicts them.
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

// carryTemporary adds the temporary rules in force to the program of the previous generation, so that they apply all the time. In netfilter the
// temporary rules have a separate ruleset, which stays. If carryTemporary fails, nothing has changed. mend then adds the rules to the policy that
// runs after the rollback.
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

// previous returns the generation before the running one.
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

// previousProgram returns the previous generation if it has an XDP program, else nil. If only the previous generation has
// a program, the error says that the targets differ.
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
