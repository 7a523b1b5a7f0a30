package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/netfilter"
)

// Now is the policy that runs after Confirm or Rollback.
type Now struct {
	Generation int      `json:"generation"` // 0 when nothing runs any more
	Policy     string   `json:"policy"`
	Devices    []string `json:"devices"`
	Boot       string   `json:"-"` // as in ApplyOptions
}

func (g *generation) now() Now {
	return Now{g.number, g.manifest.File, g.manifest.Devices, g.manifest.Boot}
}

// PreviousError says why Rollback cannot return to the policy before.
type PreviousError struct{ Cause, Remedy string }

func (e *PreviousError) Error() string { return e.Cause }

// Hint is the remedy.
func (e *PreviousError) Hint() string { return e.Remedy }

// tooLate is how short before its end a trial is not confirmed any more: the steps of it could fall on both sides.
const tooLate = 300 * time.Millisecond

// change runs fn with the lock, on what runs. Nothing is datapath.ErrNotLoaded.
func (in Instance) change(ctx context.Context, fn func(*live) error) error {
	return in.changeAny(ctx, func(l *live) error {
		if len(l.generations) == 0 {
			return datapath.ErrNotLoaded
		}
		return fn(l)
	})
}

// changeAny runs fn with the lock, on what runs, which may be nothing.
func (in Instance) changeAny(ctx context.Context, fn func(*live) error) error {
	state, err := datapath.OpenState(in.Dir, false)
	if err != nil {
		return err
	}
	unlock, err := lock(ctx, state)
	if err != nil {
		return err
	}
	defer unlock()
	l, err := openAny(ctx, state)
	if err != nil {
		return err
	}
	defer l.close()
	return fn(l)
}

// Confirm keeps the policy that is on trial. It returns datapath.ErrNoTrial when none is, and datapath.ErrExpired when
// it is too late: then the policy before is in force again.
func (in Instance) Confirm(ctx context.Context) (now Now, err error) {
	err = in.change(ctx, func(l *live) error {
		g := l.generations[0]
		now = g.now()
		switch {
		case l.trial == nil:
			return l.noTrial()
		case l.trial.left < tooLate:
			return datapath.ErrExpired
		}
		return l.confirm(context.WithoutCancel(ctx))
	})
	return now, err
}

// noTrial tells a trial that expired from none at all.
func (l *live) noTrial() error {
	t, err := l.state.Trial()
	if err == nil && t != nil {
		return datapath.ErrExpired
	}
	for k, tl := range l.tools {
		if p := l.generations[0].manifest.partOf(k); p != nil {
			if _, state, err := tl.Trial(context.Background(), p.Name); err == nil && state == netfilter.Returned {
				return datapath.ErrExpired
			}
		}
	}
	return errors.Join(err, datapath.ErrNoTrial)
}

// confirm keeps the newest generation. Its parts in netfilter come first: they are the ones that can refuse.
func (l *live) confirm(ctx context.Context) error {
	g := l.generations[0]
	for _, p := range g.manifest.Parts {
		t, err := l.tool(ctx, p.Kind)
		if err != nil {
			return err
		}
		if err := t.Confirm(ctx, p.Name, nameOf(l.partBefore(p.Kind))); err != nil {
			return err
		}
	}
	err := l.state.Confirm()
	if errors.Is(err, datapath.ErrNoTrial) && g.program == nil {
		err = nil // the trial was netfilter's alone
	}
	return errors.Join(err, l.dropPlaceholders(ctx, g), l.forget(g.number, l.trial.old))
}

// partBefore is the part of the generation that rests during the trial.
func (l *live) partBefore(k kind) *part {
	if l.standby == nil {
		return nil
	}
	return l.standby.manifest.partOf(k)
}

// dropPlaceholders removes the parts that only kept others at rest.
func (l *live) dropPlaceholders(ctx context.Context, g *generation) (err error) {
	for _, p := range g.manifest.Parts {
		if p.isPlaceholder() {
			err = errors.Join(err, l.tools[p.Kind].Remove(ctx, p.Name))
		}
	}
	return err
}

// forget removes the records of all but two generations.
func (l *live) forget(number, before int) error {
	records, err := l.state.Records()
	errs := []error{err}
	for _, r := range records {
		if r.Number != number && r.Number != before {
			errs = append(errs, l.state.RemoveRecord(r.Number))
		}
	}
	return errors.Join(errs...)
}

// Rollback returns to the policy before: that of a trial, or the one that ran before the last apply.
func (in Instance) Rollback(ctx context.Context) (now Now, err error) {
	err = in.change(ctx, func(l *live) error {
		ctx := context.WithoutCancel(ctx)
		if l.trial != nil {
			return l.giveUp(ctx)
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
	var errs []error
	for _, p := range g.manifest.Parts {
		t, err := l.tool(ctx, p.Kind)
		if err == nil {
			err = t.Rollback(ctx, p.Name, nameOf(l.partBefore(p.Kind)))
		}
		errs = append(errs, err)
	}
	trial, err := l.state.Trial()
	if errs = append(errs, err); trial != nil {
		errs = append(errs, l.state.Rollback())
	}
	if g.program == nil {
		errs = append(errs, l.removeRecord(g.number))
	}
	return errors.Join(append(errs, l.state.RemoveIfEmpty())...)
}

// removeRecord removes a record that may have gone with its trial.
func (l *live) removeRecord(number int) error {
	records, err := l.state.Records()
	for _, r := range records {
		if r.Number == number {
			return l.state.RemoveRecord(number)
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
	defer before.close()
	loaded := []*part{}
	for _, p := range before.manifest.Parts {
		if p.isPlaceholder() {
			continue
		}
		t, err := l.tool(ctx, p.Kind)
		if err == nil {
			err = t.load(ctx, p, nameOf(now.manifest.partOf(p.Kind)), handOver)
		}
		if err != nil {
			return errors.Join(err, l.unload(ctx, now, loaded))
		}
		loaded = append(loaded, p)
	}
	if err := l.carryBans(ctx, now, before); err != nil {
		return errors.Join(err, l.unload(ctx, now, loaded))
	}
	if now.program != nil {
		if err := l.state.Rollback(); err != nil {
			return errors.Join(err, l.unload(ctx, now, loaded))
		}
	}
	return l.settleBack(ctx, now, before)
}

// carryBans brings the bans that were made since to the generation that is to run again.
func (l *live) carryBans(ctx context.Context, now, before *generation) error {
	for _, e := range before.manifest.Sets {
		was, ok := now.manifest.set(e.Name)
		if e.Dynamic < 0 || e.Local || !ok || was.Dynamic < 0 {
			continue
		}
		list, err := l.entries(ctx, now, was)
		if err != nil {
			return err
		}
		sets, err := l.banSets(ctx, before, e)
		if err != nil {
			return err
		}
		for _, s := range sets {
			if _, _, err := s.block(ctx, asBans(list)); err != nil {
				return err
			}
		}
	}
	return nil
}

// asBans are entries with the time that they have left.
func asBans(list []Blocked) []Ban {
	bans := make([]Ban, len(list))
	for i, b := range list {
		bans[i] = Ban{Prefix: b.Prefix, For: Forever, Why: b.Why}
		if b.Expires != nil {
			bans[i].For = max(time.Duration(*b.Expires*float64(time.Second)), time.Second)
		}
	}
	return bans
}

// unload takes back parts that were loaded for a rollback that went no further.
func (l *live) unload(ctx context.Context, now *generation, parts []*part) (err error) {
	for _, p := range parts {
		err = errors.Join(err, l.tools[p.Kind].Rollback(ctx, p.Name, nameOf(now.manifest.partOf(p.Kind))))
	}
	return err
}

// settleBack ends the guard of the parts that run again, and removes those that do not.
func (l *live) settleBack(ctx context.Context, now, before *generation) (err error) {
	for _, p := range before.manifest.Parts {
		if !p.isPlaceholder() {
			err = errors.Join(err, l.tools[p.Kind].Confirm(ctx, p.Name, nameOf(now.manifest.partOf(p.Kind))))
		}
	}
	for _, p := range now.manifest.Parts {
		if before.manifest.partOf(p.Kind) == nil {
			t, findErr := l.tool(ctx, p.Kind)
			if err = errors.Join(err, findErr); findErr == nil {
				err = errors.Join(err, t.Remove(ctx, p.Name))
			}
		}
	}
	return err
}

// previous is the generation before the one that runs.
func (l *live) previous(now *generation) (*generation, error) {
	if now.program != nil {
		p, err := l.state.Previous()
		if err != nil {
			return nil, err
		}
		if p != nil {
			return ofProgram(p)
		}
	}
	records, err := l.state.Records()
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if r.Number == now.number {
			continue
		}
		m, err := readManifest(r.Number, r.Manifest)
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

func (l *live) otherTarget(now, before *manifest) error {
	return &PreviousError{
		fmt.Sprintf("the policy before, %s, ran on target %s, and this one runs on %s", before.File, before.Target, now.Target),
		fmt.Sprintf("`floodwall apply --target %s %s` applies it again", before.Target, before.File),
	}
}

// Settle removes what an unconfirmed trial has left: the kernel has returned to the policy before by itself. It returns
// the generation that was on trial, 0 when there is nothing to settle.
func (in Instance) Settle(ctx context.Context) (number int, err error) {
	err = in.changeAny(ctx, func(l *live) error {
		t, err := l.state.Trial()
		if err != nil {
			return err
		}
		if t != nil && t.Expired() {
			number = t.New
		}
		records, err := l.state.Records()
		if err != nil {
			return err
		}
		for _, r := range records {
			if inert, err := l.ended(ctx, r); err != nil {
				return err
			} else if inert {
				number = r.Number
			}
		}
		if number == 0 {
			return nil
		}
		return l.settle(context.WithoutCancel(ctx), in, number)
	})
	if errors.Is(err, datapath.ErrNotLoaded) {
		return 0, nil
	}
	return number, err
}

// ended reports whether a record is of a policy whose trial ended unconfirmed.
func (l *live) ended(ctx context.Context, r *datapath.Record) (bool, error) {
	m, err := readManifest(r.Number, r.Manifest)
	if err != nil || m.part() == nil {
		return false, err
	}
	t, err := l.tool(ctx, m.part().Kind)
	if err != nil {
		return false, err
	}
	_, state, err := t.Trial(ctx, m.part().Name)
	return state == netfilter.Inert, err
}

// settle removes the remains of a trial.
func (l *live) settle(ctx context.Context, in Instance, number int) error {
	var keep []string
	for _, g := range l.all() {
		for _, p := range g.manifest.Parts {
			keep = append(keep, p.Name)
		}
	}
	var errs []error
	for _, k := range []kind{kindNft, kindXt} {
		if _, err := l.tool(ctx, k); err == nil {
			errs = append(errs, in.clean(ctx, k, keep...))
		}
	}
	errs = append(errs, l.removeRecord(number), l.state.Settle())
	if len(l.generations) == 0 {
		errs = append(errs, l.state.RemoveIfEmpty())
	}
	return errors.Join(errs...)
}
