package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/netfilter"
)

// handOver is how long a new part in netfilter decides while XDP is being switched. If the process dies in between, the
// part becomes inert after that time, and the policy before is whole again.
const handOver = 30 * time.Second

// ahead is how long before the parts in netfilter XDP returns to the policy before: the old parts decide again by then,
// and the new ones still do, so that no packet is let by that both policies drop.
const ahead = 300 * time.Millisecond

// switchover is the change from one generation to the next where both XDP and netfilter may have a part in it.
type switchover struct {
	*apply
	applied *Applied      // what is said of it
	trial   time.Duration // of the policy, 0 for none
	loaded  time.Time     // when the first part was loaded, or would have been
	base    *generation   // that returns if the new one is not confirmed, or nil
	ended   *generation   // whose trial this change ends, or nil
	old     map[kind]*part
	new     map[kind]*part
	tools   map[kind]tool
	done    []func() error // what undoes the steps so far, first to last
}

// enforce changes what runs. When it fails, what ran before does again.
func (a *apply) enforce(ctx context.Context, applied *Applied, manifest []byte) error {
	s := &switchover{apply: a, applied: applied, trial: a.options.Confirm, tools: map[kind]tool{}}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	if s.live != nil {
		if err := s.in.retainProxy(ctx, s.live.manifests(), s.manifest); err != nil {
			return err
		}
	}
	steps := []func() error{
		func() error { return s.loadStrictly(ctx) },
		func() error { return s.install(ctx, applied, manifest) },
		func() error { return s.start(ctx) },
		func() error { return s.annotate(ctx) },
		func() error { return s.settle(ctx) },
	}
	if !s.programs() { // the record first, so that what is in netfilter is never unknown
		steps[0], steps[1] = steps[1], steps[0]
	}
	steps = append([]func() error{func() error { return s.stepBack(ctx) }}, steps...)
	s.loaded = time.Now()
	for _, step := range steps {
		if err := step(); err != nil {
			return errors.Join(err, s.undo())
		}
	}
	if s.trial > 0 {
		applied.Confirm = s.trial.Seconds()
		if s.base != nil {
			applied.Returns = s.base.number
		}
	}
	if s.program == nil && s.trial == 0 {
		if err := errors.Join(s.state.Took(applied.Generation), s.state.Stands(applied.Generation)); err != nil {
			return errors.Join(err, s.undo())
		}
	}
	if err := errors.Join(s.dropEnded(ctx), s.finish(ctx, applied.Generation)); err != nil { // nothing of it decides
		applied.Notes = append(applied.Notes, fmt.Sprintf("the next change removes what is left of the policy before: %v", err))
	}
	return nil
}

// programs reports whether XDP has a part in the change.
func (a *apply) programs() bool {
	if a.live != nil && slices.ContainsFunc(a.live.all(), func(g *generation) bool { return g.program != nil }) {
		return true
	}
	return a.program != nil || a.before != nil && a.before.program != nil
}

// both reports whether XDP and netfilter have a part in the change.
func (s *switchover) both() bool { return s.programs() && len(s.new)+len(s.old) > 0 }

// stepBack has the parts of the policy before a trial decide again, since a new one takes their place. If the change
// goes no further, the trial is over.
func (s *switchover) stepBack(ctx context.Context) error {
	if s.ended == nil || s.base == nil || len(s.base.manifest.Parts) == 0 {
		return nil
	}
	s.done = append(s.done, func() error { return s.live.giveUp(ctx) })
	for _, p := range s.ended.manifest.all() {
		if old := s.old[p.Kind]; old != nil {
			if err := s.tools[p.Kind].Rollback(ctx, p.Name, old.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropEnded removes what is left of the policy whose trial this change has ended.
func (s *switchover) dropEnded(ctx context.Context) (err error) {
	if s.ended == nil {
		return nil
	}
	for _, p := range s.ended.manifest.all() {
		err = errors.Join(err, s.tools[p.Kind].Remove(ctx, p.Name))
	}
	if s.ended.program == nil {
		err = errors.Join(err, removeRecord(s.state, s.ended.number))
	}
	return err
}

// prepare finds the tools, and removes remains of applies that died.
func (s *switchover) prepare(ctx context.Context) error {
	s.old, s.new = map[kind]*part{}, map[kind]*part{}
	for _, p := range s.manifest.all() {
		s.new[p.Kind] = p
	}
	var keep []string
	used := map[kind]bool{}
	for k := range s.new {
		used[k] = true
	}
	if s.live != nil {
		for _, g := range s.live.all() {
			for _, p := range s.live.parts(g) {
				keep, used[p.Kind] = append(keep, p.Name), true
			}
		}
		if s.base = s.live.base(); s.live.trial != nil {
			s.ended = s.live.generations[0]
		}
	}
	if s.base != nil {
		for _, p := range s.base.manifest.Parts {
			s.old[p.Kind] = p
		}
	}
	for k := range used {
		t, err := findTool(ctx, k)
		if err != nil {
			return &unavailableError{err}
		}
		if _, err := t.Clean(ctx, s.in.prefixOf(k), keep...); err != nil {
			return err
		}
		s.tools[k] = t
	}
	return nil
}

// loadParts loads the parts in netfilter. With a trial, or where XDP has a part in the change, they decide beside the old
// ones until all has changed: at no moment is a packet let by that both policies drop.
func (s *switchover) loadParts(ctx context.Context) error {
	for _, p := range s.manifest.all() {
		k, old := p.Kind, nameOf(s.old[p.Kind])
		how := loading{trial: s.guarded(), beside: s.programs() || s.trial > 0}
		if err := s.remains(s.tools[k].load(ctx, p, old, how)); err != nil {
			return err
		}
		s.done = append(s.done, func() error {
			if s.guarded() == 0 {
				return s.tools[k].Remove(ctx, p.Name)
			}
			return s.tools[k].Rollback(ctx, p.Name, old)
		})
	}
	return nil
}

// remains passes on an error, unless it is that remains of the old part are left: the change is done.
func (s *switchover) remains(err error) error {
	var r *netfilter.RemainsError
	if errors.As(err, &r) {
		s.remain(r.Name, r.Err)
		return nil
	}
	return err
}

func (s *switchover) remain(of string, err error) {
	s.applied.Notes = append(s.applied.Notes, fmt.Sprintf("the next change removes what is left of %s: %v", of, err))
}

// guarded is how long new parts decide unless they are confirmed, 0 for ever. The time of a trial begins anew when all of
// the policy is in force.
func (s *switchover) guarded() time.Duration {
	switch {
	case s.trial > 0:
		return s.trial
	case s.programs() || s.move != nil: // the old parts are set aside, to be read when they count no more
		return handOver
	}
	return 0
}

func nameOf(p *part) string {
	if p == nil {
		return ""
	}
	return p.Name
}

// install makes the generation known, and switches the devices.
func (s *switchover) install(ctx context.Context, applied *Applied, manifest []byte) error {
	var to []datapath.Attachment
	if s.program != nil {
		to = s.attachments()
	}
	left, err := s.programGuard(ctx)
	if err != nil {
		return err
	}
	install := s.state.Install
	if s.move != nil {
		install = func(p *datapath.Program, manifest []byte, to []datapath.Attachment, trial time.Duration) ([]*datapath.Device, error) {
			return s.state.Replace(s.before.number, p, manifest, to, trial)
		}
	}
	devices, err := install(s.program, manifest, to, left)
	if err != nil {
		return err
	}
	if left > 0 && s.programs() {
		s.done = append(s.done, s.state.Rollback)
	}
	for _, d := range devices {
		applied.Generation = d.Generation
		applied.Devices = append(applied.Devices, AppliedDevice{d.Name, compile.StageXDP, d.Mode})
	}
	applied.Notes = append(applied.Notes, s.manifest.lostReplies(applied.Devices)...)
	if s.program != nil {
		return nil
	}
	for _, d := range s.devices() {
		applied.Devices = append(applied.Devices, AppliedDevice{Name: d, Stage: s.stages.First()})
	}
	records, err := s.state.Records()
	if err != nil {
		return err
	}
	applied.Generation = records[0].Number
	number := applied.Generation
	if n := len(s.done); n > 0 && left > 0 && s.programs() { // the devices know the trial by it: they return first
		s.done[n-1] = func() error {
			err := s.state.Rollback()
			if errors.Is(err, datapath.ErrNotLoaded) {
				err = nil // as in settle
			}
			return errors.Join(err, removeRecord(s.state, number))
		}
		return nil
	}
	s.done = append(s.done, func() error { return removeRecord(s.state, number) })
	return nil
}

// programGuard is how long the new program decides unless it is confirmed, 0 for ever. Alone, its trial begins with it. With
// parts in netfilter it returns before they become inert.
func (s *switchover) programGuard(ctx context.Context) (time.Duration, error) {
	switch {
	case s.trial == 0 && !s.both():
		return 0, nil
	case s.trial == 0:
		return s.guarded(), nil
	case len(s.new)+len(s.old) == 0 || !s.programs():
		return s.trial, nil
	}
	ends := s.loaded.Add(s.trial)
	if time.Since(s.loaded) > startSlack {
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

// hold has the new parts decide until the time of a trial and more has passed, and returns when the first of them may stop. On
// a machine that is slow it adds what the next steps may take.
func (s *switchover) hold(ctx context.Context, more time.Duration) (ends time.Time, err error) {
	for range startTries {
		began := time.Now()
		for _, p := range s.manifest.all() {
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
// parts decide again before the new program returns, and that before the new parts become inert: at no moment does nobody
// decide, and the old policy is whole in the end.
func (s *switchover) startTrial(ctx context.Context, trial time.Duration) error {
	for _, p := range s.manifest.all() {
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
	for _, p := range s.manifest.all() {
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
	if err := s.state.RestartTrial(max(left, ahead)); !errors.Is(err, datapath.ErrNoTrial) {
		return err
	}
	return nil
}

// succeed sets the old parts aside when rules have moved and XDP has changed, until the move is done.
func (s *switchover) succeed(ctx context.Context) error {
	if s.move == nil || !s.programs() {
		return nil
	}
	for _, p := range s.manifest.all() { // one that stands in, and so leaves nobody deciding, comes last
		if err := s.tools[p.Kind].Succeed(ctx, p.Name, nameOf(s.old[p.Kind]), s.guarded()); err != nil {
			return err
		}
	}
	return nil
}

// annotate keeps with the generation what its manifest does not have. Of a move, the old parts count no more.
func (s *switchover) annotate(ctx context.Context) error {
	number := s.applied.Generation
	if s.source != nil {
		if err := s.state.SetNote(number, datapath.NoteSource, s.source); err != nil {
			return err
		}
	}
	if s.was == nil {
		return nil
	}
	more := s.was.goesOn(s.manifest)
	if s.move != nil {
		last, err := s.live.tallies(ctx, s.before)
		if err != nil {
			return err
		}
		more = last.leaves(s.manifest, s.was, s.began)
	}
	if more.isZero() {
		return nil
	}
	return more.write(s.state, number)
}

// undo takes back what was done, last first.
func (s *switchover) undo() (err error) {
	for i := len(s.done) - 1; i >= 0; i-- {
		err = errors.Join(err, s.done[i]())
	}
	if err != nil {
		return fmt.Errorf("taking back what was done: %w", err)
	}
	return nil
}

// settle ends the guard of the new parts, and removes the old ones. Where XDP has a part in the change, the new parts are
// kept first, then XDP, and the old ones go last: wherever this ends, nothing is let by that both policies drop. With a
// trial all of it is done when that is confirmed.
func (s *switchover) settle(ctx context.Context) error {
	if s.trial > 0 {
		return nil
	}
	if s.guarded() == 0 {
		for k, old := range s.old {
			if s.new[k] == nil {
				return s.tools[k].Remove(ctx, old.Name)
			}
		}
		return nil
	}
	for _, p := range s.manifest.all() {
		if err := s.tools[p.Kind].Keep(ctx, p.Name); err != nil {
			return err
		}
	}
	if s.both() {
		err := s.state.Confirm()
		if errors.Is(err, datapath.ErrNoTrial) && s.program == nil {
			err = nil // the devices were released at once, as there is no program to return to
		}
		if err != nil {
			return err
		}
	}
	// Once an old part is removed, or XDP is confirmed that had nothing before, nothing can be taken back.
	removed := s.program != nil && (s.base == nil || s.base.program == nil)
	for _, p := range s.manifest.all() {
		old := nameOf(s.old[p.Kind])
		err := s.remains(s.tools[p.Kind].Finish(ctx, p.Name, old))
		if err != nil && !removed {
			return err
		}
		if err != nil {
			s.remain(old, err)
		}
		removed = removed || old != ""
	}
	return nil
}

// finish removes what the new generation leaves without use. With a trial that is done when it is confirmed.
func (s *switchover) finish(ctx context.Context, number int) error {
	if s.trial > 0 {
		return nil
	}
	if s.move != nil {
		return errors.Join(dropStandIns(ctx, s.tools, s.manifest), s.state.Succeed(number))
	}
	before := 0
	if s.base != nil {
		before = s.base.number
	}
	return errors.Join(dropStandIns(ctx, s.tools, s.manifest), forget(s.state, number, before), strictFor(s.state, s.manifest))
}
