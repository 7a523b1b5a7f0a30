package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/datapath"
)

// handOver is how long a new part in netfilter decides while XDP is being switched. If the process dies in between, the
// part becomes inert after that time, and the policy before is whole again.
const handOver = 30 * time.Second

// switchover is the change from one generation to the next where both XDP and netfilter may have a part in it.
type switchover struct {
	*apply
	trial time.Duration // of the policy, 0 for none
	ends  time.Time     // of the trial
	old   map[kind]*part
	new   map[kind]*part
	tools map[kind]tool
	done  []func() error // what undoes the steps so far, first to last
}

// enforce changes what runs. When it fails, what ran before does again.
func (a *apply) enforce(ctx context.Context, applied *Applied, manifest []byte) error {
	s := &switchover{apply: a, trial: a.options.Confirm, ends: time.Now().Add(a.options.Confirm), tools: map[kind]tool{}}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	steps := []func() error{
		func() error { return s.loadParts(ctx) },
		func() error { return s.install(applied, manifest) },
	}
	if !s.programs() { // the record first, so that what is in netfilter is never unknown
		steps[0], steps[1] = steps[1], steps[0]
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return errors.Join(err, s.undo())
		}
	}
	applied.Confirm = s.trial.Seconds()
	if a.before != nil {
		applied.Returns = a.before.number
	}
	return s.finish(ctx, applied.Generation)
}

// programs reports whether XDP has a part in the change.
func (s *switchover) programs() bool {
	return s.program != nil || s.before != nil && s.before.program != nil
}

// prepare finds the tools, and removes remains of applies that died.
func (s *switchover) prepare(ctx context.Context) error {
	s.old, s.new = map[kind]*part{}, map[kind]*part{}
	for _, p := range s.manifest.Parts {
		s.new[p.Kind] = p
	}
	var keep []string
	if s.live != nil {
		for _, g := range s.live.all() {
			for _, p := range g.manifest.Parts {
				keep = append(keep, p.Name)
			}
		}
		for _, p := range s.before.manifest.Parts {
			s.old[p.Kind] = p
		}
	}
	for _, k := range []kind{kindNft, kindXt} {
		if s.old[k] == nil && s.new[k] == nil {
			continue
		}
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

// loadParts loads the parts in netfilter. One that takes the place of another of its kind does so at once.
func (s *switchover) loadParts(ctx context.Context) error {
	for k, p := range s.new {
		old := nameOf(s.old[k])
		if err := s.tools[k].load(ctx, p, old, s.guarded()); err != nil {
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

// guarded is how long new parts decide unless they are confirmed, 0 for ever.
func (s *switchover) guarded() time.Duration {
	switch {
	case s.trial > 0:
		return time.Until(s.ends)
	case s.programs():
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
func (s *switchover) install(applied *Applied, manifest []byte) error {
	var to []datapath.Attachment
	if s.program != nil {
		to = s.attachments()
	}
	left := s.trial
	if left > 0 {
		left = time.Until(s.ends)
	}
	devices, err := s.state.Install(s.program, manifest, to, left)
	if err != nil {
		return err
	}
	for _, d := range devices {
		applied.Generation = d.Generation
		applied.Devices = append(applied.Devices, AppliedDevice{d.Name, compile.StageXDP, d.Mode})
	}
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
	s.done = append(s.done, func() error { return s.state.RemoveRecord(records[0].Number) })
	return nil
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

// finish ends the guard of new parts, and removes what the new generation leaves without use. With a trial that is
// done when it is confirmed.
func (s *switchover) finish(ctx context.Context, number int) error {
	if s.trial > 0 {
		return nil
	}
	var errs []error
	for k, t := range s.tools {
		switch {
		case s.new[k] == nil:
			errs = append(errs, t.Remove(ctx, s.old[k].Name))
		case s.guarded() > 0:
			errs = append(errs, t.Confirm(ctx, s.new[k].Name, nameOf(s.old[k])))
		}
	}
	return errors.Join(append(errs, s.forget(number))...)
}

// forget removes the records of generations that are neither the new one nor the one before, to which Rollback returns.
func (s *switchover) forget(number int) error {
	records, err := s.state.Records()
	errs := []error{err}
	for _, r := range records {
		if r.Number != number && (s.before == nil || r.Number != s.before.number) {
			errs = append(errs, s.state.RemoveRecord(r.Number))
		}
	}
	return errors.Join(errs...)
}
