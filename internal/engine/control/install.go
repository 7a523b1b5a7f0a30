package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// handOver is the time for which a new ruleset in netfilter decides while XDP is being switched. If the process dies in between, the
// ruleset becomes inert after that time, and the previous policy is in force again.
const handOver = 30 * time.Second

// installed is a generation that decides, alone or on trial.
type installed struct {
	*loaded
	generation int
	returns    int // the generation that returns when a trial ends unconfirmed, 0 for none
	devices    []AppliedDevice
	notes      []string // beside those of loaded
}

// install changes what runs. When it fails, what ran before does again. Once it changes anything it is not interrupted.
func (l *loaded) install(ctx context.Context) (*installed, error) {
	text, err := json.Marshal(l.manifest)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if err := windDown(ctx, l.running.generation, l.manifest); err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	s := &switchover{loaded: l, text: text, to: &installed{loaded: l}, trial: l.options.Confirm, tools: map[netfilter.Kind]netfilter.Tool{}}
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	if l.move != nil {
		return s.to, nil
	}
	if _, err := l.running.state.RotateKeys(); err != nil {
		s.note(fmt.Sprintf("SYN cookies keep their key: %v", err))
	}
	return s.to, nil
}

// report is what was done.
func (i *installed) report() *Applied {
	out := i.loaded.report()
	out.Generation, out.Devices, out.Confirm = i.generation, i.devices, i.options.Confirm.Seconds()
	if i.options.Confirm > 0 {
		out.Returns = i.returns
	}
	out.Notes = append(out.Notes, i.notes...)
	return out
}

// switchover is the change from one generation to the next where both XDP and netfilter may have a part in it.
type switchover struct {
	*loaded
	text  []byte                 // of the manifest
	to    *installed             // what comes of it
	trial time.Duration          // of the policy, 0 for none
	begin time.Time              // when the first ruleset was loaded, or would have been
	base  *generation.Generation // that returns if the new one is not confirmed, or nil
	ended *generation.Generation // whose trial this change ends, or nil
	old   map[netfilter.Kind]*netfilter.Ruleset
	new   map[netfilter.Kind]*netfilter.Ruleset
	tools map[netfilter.Kind]netfilter.Tool
	done  []func() error // what undoes the steps so far, first to last
}

// run goes from step to step, and takes back what was done when one fails.
func (s *switchover) run(ctx context.Context) error {
	if err := s.prepare(ctx); err != nil {
		return err
	}
	if s.running.live != nil {
		if err := s.in.retainProxy(ctx, s.running.live.Manifests(), s.manifest); err != nil {
			return err
		}
	}
	steps := []func(context.Context) error{s.stepBack, s.loadStrictly, s.attach, s.dropTried, s.start, s.annotate, s.settle, s.stands}
	if !s.programs() { // the record first, so that what is in netfilter is never unknown
		steps[1], steps[2] = steps[2], steps[1]
	}
	s.begin = time.Now()
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return errors.Join(err, s.undo())
		}
	}
	if err := errors.Join(s.dropEnded(), s.finish(ctx)); err != nil { // nothing of it decides
		s.note(fmt.Sprintf("the next change removes what is left of the previous policy: %v", err))
	}
	return nil
}

// stands notes that a policy in netfilter alone is in force for good.
func (s *switchover) stands(context.Context) error {
	if s.program != nil || s.trial > 0 {
		return nil
	}
	return errors.Join(s.running.state.Took(s.to.generation), s.running.state.Stands(s.to.generation))
}

// note adds a note.
func (s *switchover) note(text string) { s.to.notes = append(s.to.notes, text) }

// both reports whether XDP and netfilter have a part in the change.
func (s *switchover) both() bool { return s.programs() && len(s.new)+len(s.old) > 0 }

// stepBack puts the rulesets of the policy before a trial in force again, because a new policy replaces them. Those on trial decide too,
// until XDP has changed. If the change fails after this, the trial is over.
func (s *switchover) stepBack(ctx context.Context) error {
	if s.ended == nil || s.base == nil || len(s.base.Manifest.Rulesets) == 0 {
		return nil
	}
	s.done = append(s.done, func() error { return s.running.live.giveUp(ctx) })
	for _, p := range s.ended.Manifest.AllRulesets() {
		if old := s.old[p.Kind]; old != nil {
			if err := s.tools[p.Kind].Release(ctx, p.Name, old.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropTried removes the rulesets of the policy whose trial this change has ended.
func (s *switchover) dropTried(ctx context.Context) error {
	if s.ended == nil {
		return nil
	}
	for _, p := range s.ended.Manifest.AllRulesets() {
		if err := s.tools[p.Kind].Remove(ctx, p.Name); err != nil {
			s.remain(p.Name, err)
		}
	}
	return nil
}

// dropEnded removes the record of the policy whose trial this change has ended, if it has one.
func (s *switchover) dropEnded() error {
	if s.ended == nil || s.ended.Program != nil {
		return nil
	}
	return removeRecord(s.running.state, s.ended.Number)
}

// prepare finds the tools, and removes remains of applies that died.
func (s *switchover) prepare(ctx context.Context) error {
	s.old, s.new = map[netfilter.Kind]*netfilter.Ruleset{}, map[netfilter.Kind]*netfilter.Ruleset{}
	for _, p := range s.manifest.AllRulesets() {
		s.new[p.Kind] = p
	}
	var keep []string
	used := map[netfilter.Kind]bool{}
	for k := range s.new {
		used[k] = true
	}
	if s.running.live != nil {
		for _, g := range s.running.live.All() {
			for _, p := range s.running.live.Rulesets(g) {
				keep, used[p.Kind] = append(keep, p.Name), true
			}
		}
		if s.base = s.running.live.Base(); s.running.live.Trial != nil {
			s.ended = s.running.live.Generations[0]
		}
	}
	if s.base != nil {
		for _, p := range s.base.Manifest.Rulesets {
			s.old[p.Kind] = p
		}
	}
	for k := range used {
		t, err := netfilter.FindTool(ctx, k)
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

// loadRulesets loads the rulesets in netfilter. With a trial, or where XDP has a part in the change, they decide beside the old
// ones until all has changed: at no moment is a packet let by that both policies drop.
func (s *switchover) loadRulesets(ctx context.Context) error {
	for _, p := range s.manifest.AllRulesets() {
		k, old := p.Kind, nameOf(s.old[p.Kind])
		how := netfilter.Loading{Trial: s.guarded(), Beside: s.programs() || s.trial > 0}
		if err := s.remains(s.tools[k].Load(ctx, p, old, how)); err != nil {
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

// remains returns nil for the error that parts of the old ruleset are left, because the change is done; it returns any other error.
func (s *switchover) remains(err error) error {
	var r *netfilter.RemainsError
	if errors.As(err, &r) {
		s.remain(r.Name, r.Err)
		return nil
	}
	return err
}

func (s *switchover) remain(of string, err error) {
	s.note(fmt.Sprintf("the next change removes what is left of %s: %v", of, err))
}

// guarded is how long new rulesets decide unless they are confirmed, 0 for ever. The time of a trial begins anew when all of
// the policy is in force.
func (s *switchover) guarded() time.Duration {
	switch {
	case s.trial > 0:
		return s.trial
	case s.programs() || s.move != nil: // the old rulesets are set aside, to be read when they count no more
		return handOver
	}
	return 0
}

func nameOf(p *netfilter.Ruleset) string {
	if p == nil {
		return ""
	}
	return p.Name
}

// attach makes the generation known, and switches the devices.
func (s *switchover) attach(ctx context.Context) error {
	var to []datapath.Attachment
	if s.program != nil {
		to = s.attachments()
	}
	ends, err := s.programEnds(ctx)
	if err != nil {
		return err
	}
	state := s.running.state
	var devices []*datapath.Device
	if s.move != nil {
		devices, err = state.Replace(s.running.generation.Number, s.program, s.text, to, ends)
	} else {
		devices, err = state.Install(s.program, s.text, to, ends)
	}
	if err != nil {
		return err
	}
	if s.base != nil {
		s.to.returns = s.base.Number
	}
	if s.program != nil {
		if !ends.IsZero() {
			s.done = append(s.done, state.Rollback)
		}
		for _, d := range devices {
			s.to.generation = d.Generation
			s.to.devices = append(s.to.devices, AppliedDevice{d.Name, plan.StageXDP, d.Mode})
			if d.Mode == datapath.Native {
				s.to.notes = append(s.to.notes, s.manifest.LostReplies(d.Name)...)
			}
		}
		return nil
	}
	return s.recorded(!ends.IsZero() && s.programs())
}

// recorded finds the record of a generation without XDP, and has undo remove it. released says that devices were, on trial.
func (s *switchover) recorded(released bool) error {
	state := s.running.state
	if released {
		s.done = append(s.done, state.Rollback)
	}
	for _, d := range s.devices() {
		s.to.devices = append(s.to.devices, AppliedDevice{Name: d, Stage: s.stages.First()})
	}
	records, err := state.Records()
	if err != nil {
		return err
	}
	number := records[0].Number
	s.to.generation = number
	if !released {
		s.done = append(s.done, func() error { return removeRecord(state, number) })
		return nil
	}
	s.done[len(s.done)-1] = func() error { // the devices know the trial by the record: they return first
		err := state.Rollback()
		if errors.Is(err, datapath.ErrNotLoaded) {
			err = nil // as in settle
		}
		return errors.Join(err, removeRecord(state, number))
	}
	return nil
}

// annotate records with the generation what its manifest lacks. After a move, the counts of the old rulesets are not added any more.
func (s *switchover) annotate(ctx context.Context) error {
	number := s.to.generation
	if s.source != nil {
		if err := s.running.state.SetNote(number, datapath.NoteSource, s.source); err != nil {
			return err
		}
	}
	if s.running.counted == nil {
		return nil
	}
	more := s.running.counted.GoesOn(s.manifest)
	if s.move != nil {
		last, err := s.running.live.Counts(ctx, s.running.generation)
		if err != nil {
			return err
		}
		more = last.Leaves(s.manifest, s.running.counted, s.began)
	}
	if more.IsZero() {
		return nil
	}
	return more.Write(s.running.state, number)
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

// settle ends the guard of the new rulesets, and removes the old ones. Where XDP has a part in the change, the new rulesets are
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
	for _, p := range s.manifest.AllRulesets() {
		if err := s.tools[p.Kind].Keep(ctx, p.Name); err != nil {
			return err
		}
	}
	if s.both() {
		err := s.running.state.Confirm()
		if errors.Is(err, datapath.ErrNoTrial) && s.program == nil {
			err = nil // the devices were released at once, as there is no program to return to
		}
		if err != nil {
			return err
		}
	}
	// After an old ruleset is removed, or XDP is confirmed that had no program before, nothing can be undone.
	removed := s.program != nil && (s.base == nil || s.base.Program == nil)
	for _, p := range s.manifest.AllRulesets() {
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

// finish removes objects that the new generation does not need. With a trial, confirm does that.
func (s *switchover) finish(ctx context.Context) error {
	number := s.to.generation
	if s.trial > 0 {
		return nil
	}
	if s.move != nil {
		return errors.Join(dropStandIns(ctx, s.tools, s.manifest), s.running.state.Succeed(number))
	}
	before := 0
	if s.base != nil {
		before = s.base.Number
	}
	return errors.Join(dropStandIns(ctx, s.tools, s.manifest), forget(s.running.state, number, before), strictFor(s.running.state, s.manifest))
}
