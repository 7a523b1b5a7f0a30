// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// handOver is the time for which a new ruleset in netfilter decides while XDP is being switched. If the process dies in between, the ruleset becomes
// inert after that time, and the previous policy is in force again. Until then both policies decide, and a packet that either policy drops is
// dropped. Half a minute was too short for an apply in an emulated machine.
const handOver = 2 * time.Minute

// prepare finds the tools of netfilter. It removes rulesets that belong to no generation, if their kind takes part in the change: those of applies
// that died, and others with the instance's names. Rulesets of other kinds decide until the new policy does. If the program that removes a ruleset is
// missing, the change ends here.
func (t *transaction) prepare(ctx context.Context) error {
	t.rulesets, t.old = t.manifest.AllRulesets(), rulesetsOf(t.base)
	used := map[netfilter.Kind]bool{}
	for _, p := range slices.Concat(t.rulesets, t.running()) {
		used[p.Kind] = true
	}
	left, err := t.in.held(owned(t.live))
	if err != nil {
		return err
	}
	if err := netfilter.Removable(left); err != nil {
		return &UnownedError{left, err}
	}
	var now []netfilter.Held
	for _, h := range left {
		if used[h.Kind] {
			now = append(now, h)
		}
	}
	t.saidRemoved(ctx, now)
	if err := netfilter.RemoveHeld(ctx, now); err != nil {
		return &UnownedError{now, err}
	}
	for k := range used {
		tool, err := t.live.Tool(ctx, k)
		if err != nil {
			return &unavailableError{err}
		}
		if _, err := tool.Clean(ctx, t.in.prefixOf(k), namesOf(t.running())...); err != nil {
			return err
		}
	}
	return nil
}

// saidRemoved adds a note for each removed ruleset that decided although no policy in force owned it.
func (t *transaction) saidRemoved(ctx context.Context, list []netfilter.Held) {
	for _, h := range list {
		if h.Decides(ctx) {
			t.note(fmt.Sprintf("netfilter held %s, which no policy in force has: it is removed; saved rules that were restored leave such", h))
		}
	}
}

// removeLeft removes the remaining rulesets with the instance's names, now that the new policy decides.
func (t *transaction) removeLeft(ctx context.Context) error {
	keep := append(owned(t.live), t.rulesets...)
	if t.manifest.TemporaryRuleset != nil {
		keep = append(keep, t.manifest.TemporaryRuleset)
	}
	list, err := t.in.held(keep)
	if err != nil || len(list) == 0 {
		return err
	}
	t.saidRemoved(ctx, list)
	_, err = t.in.removeHeld(ctx, keep...)
	return err
}

// running returns the rulesets of all generations that run.
func (t *transaction) running() (list []*netfilter.Ruleset) {
	for _, g := range t.live.All() {
		list = append(list, t.live.Rulesets(g)...)
	}
	return list
}

func namesOf(list []*netfilter.Ruleset) (names []string) {
	for _, p := range list {
		names = append(names, p.Name)
	}
	return names
}

// rulesetsOf returns the rulesets of a generation by their kind. For nil it returns an empty map.
func rulesetsOf(g *generation.Generation) map[netfilter.Kind]*netfilter.Ruleset {
	of := map[netfilter.Kind]*netfilter.Ruleset{}
	if g != nil {
		for _, p := range g.Manifest.Rulesets {
			of[p.Kind] = p
		}
	}
	return of
}

// retain keeps open connections of SYNPROXY working.
func (t *transaction) retain(ctx context.Context) error {
	return t.in.retainProxy(ctx, t.live.Manifests(), t.manifest)
}

// stepBack makes the rulesets of the policy before the trial decide again. The rulesets on trial also decide until XDP has changed. If the change
// fails after this step, the trial is over.
func (t *transaction) stepBack(ctx context.Context) error {
	if !t.stepsBack() {
		return nil
	}
	return t.onRulesets(ctx, t.ended.Manifest.AllRulesets(), func(tool netfilter.Tool, p *netfilter.Ruleset) error {
		if old := t.old[p.Kind]; old != nil {
			return tool.Release(ctx, p.Name, old.Name)
		}
		return nil
	})
}

func (t *transaction) stepsBack() bool { return t.ended != nil && len(t.old) > 0 }

// endTrialBefore ends the trial. This is the closest possible undo of stepBack.
func (t *transaction) endTrialBefore(ctx context.Context) error {
	if !t.stepsBack() {
		return nil
	}
	return t.in.over(t.live).giveUp(ctx)
}

// dropTried removes the rulesets of the policy whose trial this change has ended.
func (t *transaction) dropTried(ctx context.Context) error {
	if t.ended == nil {
		return nil
	}
	for _, p := range t.ended.Manifest.AllRulesets() {
		if err := t.live.Tools[p.Kind].Remove(ctx, p.Name); err != nil {
			t.remain(p.Name, err)
		}
	}
	return nil
}

// loadRulesets loads the rulesets into netfilter. With a trial, or if XDP takes part in the change, they decide beside the old ones until the change
// is complete. So a packet that both policies drop is always dropped.
func (t *transaction) loadRulesets(ctx context.Context) error {
	t.begin = time.Now()
	how := netfilter.Loading{Trial: t.guarded(), Beside: t.programs() || t.trial > 0}
	return t.onRulesets(ctx, t.rulesets, func(tool netfilter.Tool, p *netfilter.Ruleset) error {
		old := nameOf(t.old[p.Kind])
		if err := t.remains(tool.Load(ctx, p, old, how)); err != nil {
			return err
		}
		t.entered = append(t.entered, p)
		t.final = t.final || t.guarded() == 0 && old != ""
		return nil
	})
}

// unloadRulesets removes the rulesets that were loaded or are on trial, the last one first. The old rulesets decide again.
func (t *transaction) unloadRulesets(ctx context.Context) (err error) {
	for _, p := range slices.Backward(t.entered) {
		tool, failed := t.live.Tool(ctx, p.Kind)
		if failed == nil {
			failed = tool.Rollback(ctx, p.Name, nameOf(t.old[p.Kind]))
		}
		err = errors.Join(err, failed)
	}
	return err
}

// onRulesets calls fn with each ruleset and its tool, until one fails.
func (t *transaction) onRulesets(ctx context.Context, list []*netfilter.Ruleset, fn func(netfilter.Tool, *netfilter.Ruleset) error) error {
	for _, p := range list {
		tool, err := t.live.Tool(ctx, p.Kind)
		if err == nil {
			err = fn(tool, p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// remains returns nil if only parts of the old ruleset could not be removed, because the change is complete. It returns any other error unchanged.
func (t *transaction) remains(err error) error {
	var r *netfilter.RemainsError
	if errors.As(err, &r) {
		t.remain(r.Name, r.Err)
		return nil
	}
	return err
}

func (t *transaction) remain(of string, err error) {
	t.note(fmt.Sprintf("the next change removes what is left of %s: %v", of, err))
}

// guarded returns the time for which new rulesets decide unless they are confirmed; 0 means that they stay. The time of a trial starts again when the
// whole policy is in force.
func (t *transaction) guarded() time.Duration {
	switch {
	case t.trial > 0:
		return t.trial
	case t.programs() || t.move != nil: // the old rulesets are kept inactive, so that their final counts can be read
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

// attach records the generation, and switches the devices. If there is no deadline, the switch cannot be undone.
func (t *transaction) attach(ctx context.Context) error {
	text, err := json.Marshal(t.manifest)
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	var to []datapath.Attachment
	if t.program != nil {
		to = t.attachments()
		if _, err := t.state.Reorder(func(datapath.Misplaced) bool { return true }); err != nil {
			return err
		}
	}
	ends, err := t.programEnds(ctx)
	if err != nil {
		return err
	}
	var devices []*datapath.Device
	if t.move != nil {
		devices, err = t.state.Replace(t.now.Number, t.program, text, to, ends)
	} else {
		devices, err = t.state.Install(t.program, text, to, ends)
	}
	if err != nil {
		return err
	}
	t.switched = !ends.IsZero() && t.programs()
	if t.base != nil {
		t.returns = t.base.Number
	}
	if t.program == nil {
		return t.findRecord()
	}
	t.final = !t.switched
	if t.now != nil {
		t.moves = maps.Clone(t.now.Moves)
	}
	for _, d := range devices {
		t.number = d.Generation
		t.noteMove(d)
		t.attached = append(t.attached, AppliedDevice{d.Name, stageIn(d.Mode), d.Mode})
		if want := t.modes[d.Name]; want != "" && want != d.Mode {
			t.note(fmt.Sprintf("device %s runs in %s mode: this kernel cannot load the program for mode %s", d.Name, d.Mode, want))
		}
		if d.NotNative != nil {
			t.note(fmt.Sprintf("device %s runs in %s mode: %s; `--mode native` says what would change that", d.Name, d.Mode, d.NotNative.Cause))
		}
		if d.Mode == datapath.Native {
			t.notes = append(t.notes, t.manifest.LostReplies(d.Name)...)
			t.noteNativeCost(d.Name)
		}
	}
	return nil
}

// noteMove notes the change of the mode of a device, or that the program came to the device. A mode that the user asks for ends what was learnt about
// the device: it may change again.
func (t *transaction) noteMove(d *datapath.Device) {
	if t.moves == nil {
		t.moves = generation.Moves{}
	}
	m, moved := t.moves[d.Name]
	if d.Move != nil {
		m, moved = *d.Move, true
		m.Why = "the policy was applied"
	}
	if t.options.Mode == datapath.Auto && t.move == nil {
		m.Stays = ""
	}
	if moved {
		t.moves[d.Name] = m
	}
}

// findRecord finds the record of a generation without XDP.
func (t *transaction) findRecord() error {
	for _, d := range t.devices() {
		t.attached = append(t.attached, AppliedDevice{Name: d, Stage: t.stages.First()})
	}
	records, err := t.state.Records()
	if err == nil {
		t.number = records[0].Number
	}
	return err
}

// detach gives the devices their previous programs back, and removes the record. The devices come first, because their trial is found by the record.
func (t *transaction) detach(context.Context) (err error) {
	if t.switched {
		err = t.state.Rollback()
	}
	if t.program != nil || t.number == 0 {
		return err
	}
	if errors.Is(err, datapath.ErrNotLoaded) {
		err = nil // no state is left, as in finishTrial
	}
	return errors.Join(err, removeRecord(t.state, t.number))
}

// annotate stores data with the generation that the manifest does not have.
func (t *transaction) annotate(ctx context.Context) error {
	err := t.writeNotes(ctx)
	if err != nil && t.final {
		t.note(fmt.Sprintf("it is in force, but lists and rules cannot change while it runs: %v; apply it again", err))
		return nil
	}
	return err
}

// writeNotes stores the source of the generation, and the counts to add to its counters. After a move the counts of the old rulesets no longer
// change.
func (t *transaction) writeNotes(ctx context.Context) error {
	if t.source != nil {
		if err := t.state.SetNote(t.number, datapath.NoteSource, t.source); err != nil {
			return err
		}
	}
	if len(t.moves) > 0 {
		if err := t.moves.Write(t.state, t.number); err != nil {
			return err
		}
	}
	if t.counted == nil {
		return nil
	}
	more := t.counted.GoesOn(t.manifest)
	if t.move != nil {
		last, err := t.live.Counts(ctx, t.now)
		if err != nil {
			return err
		}
		more = last.Leaves(t.manifest, t.counted, t.began)
	}
	if more.IsZero() {
		return nil
	}
	return more.Write(t.state, t.number)
}

// keepRulesets removes the deadline of the new rulesets. During a trial, Confirm removes it later.
func (t *transaction) keepRulesets(ctx context.Context) error {
	if t.trial > 0 || t.guarded() == 0 {
		return nil
	}
	return t.onRulesets(ctx, t.rulesets, func(tool netfilter.Tool, p *netfilter.Ruleset) error { return tool.Keep(ctx, p.Name) })
}

// confirmDevices makes the switch to the new programs permanent, if they had a deadline. After this step the change cannot be undone completely.
func (t *transaction) confirmDevices(context.Context) error {
	if t.trial > 0 || t.next == nil && !t.both() {
		return nil
	}
	err := t.state.Confirm()
	if errors.Is(err, datapath.ErrNoTrial) && !t.toProgram() {
		err = nil // no program was to return, so the devices were switched at once; or the trial was in netfilter only
	}
	t.final = err == nil
	return err
}

// finishRulesets removes the previous rulesets. After the first removal the change cannot be undone.
func (t *transaction) finishRulesets(ctx context.Context) error {
	if t.trial > 0 {
		return nil
	}
	var errs []error
	for _, p := range t.rulesets {
		if t.guarded() == 0 {
			continue // the new ruleset replaced the old one in one step
		}
		old := nameOf(t.old[p.Kind])
		err := t.remains(t.live.Tools[p.Kind].Finish(ctx, p.Name, old))
		if err != nil && !t.final {
			return err
		}
		errs = append(errs, err)
		t.final = t.final || old != ""
	}
	for k, old := range t.old {
		if slices.ContainsFunc(t.rulesets, func(p *netfilter.Ruleset) bool { return p.Kind == k }) {
			continue
		}
		tool, err := t.live.Tool(ctx, k)
		if err == nil {
			err = tool.Remove(ctx, old.Name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// stands records that a policy without XDP is in force permanently.
func (t *transaction) stands(context.Context) error {
	if t.toProgram() {
		return nil
	}
	return errors.Join(t.state.Took(t.number), t.state.Stands(t.number))
}

// dropRecord removes the record of the policy whose trial has ended, if it has one.
func (t *transaction) dropRecord(context.Context) error { return removeRecord(t.state, t.tried) }

// dropStandIns removes the stand-ins: rulesets that decide nothing and only kept other rulesets inactive.
func (t *transaction) dropStandIns(ctx context.Context) (err error) {
	for _, p := range t.manifest.StandIn {
		err = errors.Join(err, t.live.Tools[p.Kind].Remove(ctx, p.Name))
	}
	return err
}

// forget removes the records of all generations except this one and the one that Rollback returns to.
func (t *transaction) forget(context.Context) error {
	records, err := t.state.Records()
	errs := []error{err}
	for _, r := range records {
		if r.Number != t.number && r.Number != t.returns {
			errs = append(errs, t.state.RemoveRecord(r.Number))
		}
	}
	return errors.Join(errs...)
}

// succeed gives a generation that replaced another one of the same policy its place in the order of Rollback.
func (t *transaction) succeed(context.Context) error { return t.state.Succeed(t.number) }

// rotateKeys draws a new key for SYN cookies.
func (t *transaction) rotateKeys(context.Context) error {
	if _, err := t.state.RotateKeys(); err != nil {
		t.note(fmt.Sprintf("SYN cookies keep their key: %v", err))
	}
	return nil
}

// report returns the result of an apply. For a dry run it returns the expected result.
func (t *transaction) report() *Applied {
	out := &Applied{
		Target: t.target, Choice: t.choice, Rules: len(t.compiled.Program.Rules), Stages: map[plan.Stage]int{}, Bans: t.bans,
		Generation: t.number, Boot: t.options.Boot, Devices: t.attached, Notes: append(t.compiled.NotesFor(t.target), t.notes...),
	}
	if t.xdp != nil {
		out.Form = t.xdp.Form
	}
	for _, place := range t.stages.Rules {
		out.Stages[place.Stage]++
	}
	for _, s := range t.manifest.Sets {
		out.Entries += s.Entries
	}
	if t.trial > 0 && t.number != 0 {
		out.Confirm, out.Returns = t.trial.Seconds(), t.returns
	}
	return out
}
