// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/floodwall/floodwall/internal/compile/plan"
)

// The steps of each list run from top to bottom. A step has a name, a function that does it, and a function that undoes it. The comment of
// transaction describes how run and each call them.

// decide determines the policy to load. It changes nothing in the kernel.
var decide = []step{
	{"check the rights", (*transaction).permitted, nil},
	{"look at what runs", (*transaction).look, nil},
	{"check whose directory it is", (*transaction).checkDirectory, nil},
	{"check what the move is for", (*transaction).follows, nil},
	{"choose how services are protected", (*transaction).protect, nil},
	{"choose the stages of rules", (*transaction).place, nil},
	{"plan counters and manifest", (*transaction).record, nil},
	{"choose the modes of devices", (*transaction).chooseModes, nil},
	{"check VLAN tags", (*transaction).tags, nil},
}

// loadXDP loads the new program into the kernel, beside the running one. The new program is attached to no device yet. If the change ends here, close
// removes the new program.
var loadXDP = []step{
	{"load the program", (*transaction).loadProgram, nil},
	{"go on with counters", (*transaction).keepCounters, nil},
	{"go on with connections", (*transaction).keepConnections, nil},
	{"go on with replies", (*transaction).keepReplies, nil},
	{"go on with bans", (*transaction).keepBans, nil},
	{"fill dynamic sets", (*transaction).fillDynamic, nil},
	{"say what this host has", (*transaction).fillEnds, nil},
	{"compile the rules for netfilter", (*transaction).netfilter, nil},
	{"ask whether the operator's sessions live", (*transaction).guard, nil},
}

// loadNetfilter is loadXDP for a target without an XDP program.
var loadNetfilter = []step{
	{"go on with bans", (*transaction).keepBans, nil},
	{"compile the rules for netfilter", (*transaction).netfilter, nil},
	{"ask whether the operator's sessions live", (*transaction).guard, nil},
}

// switchXDP puts the new policy in force if the old or the new policy uses XDP. The new rulesets decide beside the old ones until the devices are
// switched. So a packet that both policies drop is always dropped (deadlines.go).
var switchXDP = []step{
	{"keep the state directory", (*transaction).keepDirectory, nil},
	{"wind down protections that end", (*transaction).windDown, nil},
	{"find the tools, and remove remains", (*transaction).prepare, nil},
	{"retain connections of SYNPROXY", (*transaction).retain, nil},
	{"have rulesets before a trial decide", (*transaction).stepBack, (*transaction).endTrialBefore},
	{"make conntrack strict", (*transaction).beStrict, (*transaction).strictAsBefore},
	{"load the rulesets", (*transaction).loadRulesets, (*transaction).unloadRulesets},
	{"have conntrack know open flows", (*transaction).trackReplies, nil},
	{"make conntrack strict that came with them", (*transaction).beStrict, nil},
	{"switch the devices", (*transaction).attach, (*transaction).detach},
	{"remove what no policy has", (*transaction).removeLeft, nil},
	{"add replies to what has left since", (*transaction).joinReplies, nil},
	{"remove the rulesets of a trial before", (*transaction).dropTried, nil},
	{"begin the trial", (*transaction).start, nil},
	{"note what the manifest lacks", (*transaction).annotate, nil},
	{"keep the rulesets", (*transaction).keepRulesets, nil},
	{"confirm the devices", (*transaction).confirmDevices, nil},
	{"remove the rulesets before", (*transaction).finishRulesets, nil},
}

// switchNetfilter is switchXDP for a change without XDP. The record is written first, so that the rulesets in netfilter are always known. A new
// ruleset replaces the old one of its kind in one step. After that step no failure may undo the change.
var switchNetfilter = []step{
	{"keep the state directory", (*transaction).keepDirectory, nil},
	{"find the tools, and remove remains", (*transaction).prepare, nil},
	{"retain connections of SYNPROXY", (*transaction).retain, nil},
	{"have rulesets before a trial decide", (*transaction).stepBack, (*transaction).endTrialBefore},
	{"record the generation", (*transaction).attach, (*transaction).detach},
	{"make conntrack strict", (*transaction).beStrict, (*transaction).strictAsBefore},
	{"load the rulesets", (*transaction).loadRulesets, (*transaction).unloadRulesets},
	{"remove what no policy has", (*transaction).removeLeft, nil},
	{"have conntrack know open flows", (*transaction).trackReplies, nil},
	{"make conntrack strict that came with them", (*transaction).beStrict, nil},
	{"remove the rulesets of a trial before", (*transaction).dropTried, nil},
	{"begin the trial", (*transaction).start, nil},
	{"note what the manifest lacks", (*transaction).annotate, nil},
	{"keep the rulesets", (*transaction).keepRulesets, nil},
	{"remove the rulesets before", (*transaction).finishRulesets, nil},
}

// The steps after the switch, for a trial, for a move, and for any other apply. They do not change any verdict.
var (
	tidyTrial = []step{
		{"forget a trial that ended", (*transaction).forgetEnded, nil},
		{"remove the record of a trial before", (*transaction).dropRecord, nil},
		{"draw a key for SYN cookies", (*transaction).rotateKeys, nil},
	}
	tidyMove = []step{
		{"note that it stands", (*transaction).stands, nil},
		{"remove stand-ins", (*transaction).dropStandIns, nil},
		{"take the place of the generation before", (*transaction).succeed, nil},
	}
	tidyApply = []step{
		{"forget a trial that ended", (*transaction).forgetEnded, nil},
		{"note that it stands", (*transaction).stands, nil},
		{"remove the record of a trial before", (*transaction).dropRecord, nil},
		{"remove stand-ins", (*transaction).dropStandIns, nil},
		{"forget generations before the last", (*transaction).forget, nil},
		{"give conntrack back", (*transaction).strictAsNext, nil},
		{"draw a key for SYN cookies", (*transaction).rotateKeys, nil},
	}
)

// apply applies a policy, or moves rules. A dry run ends before the switch.
func (t *transaction) apply(ctx context.Context) (*Applied, error) {
	defer t.close()
	load, change, tidy := loadNetfilter, switchNetfilter, tidyApply
	if t.target == plan.TargetXDP {
		load = loadXDP
	}
	err := t.run(ctx, decide)
	if err == nil {
		err = t.run(ctx, load)
	}
	if err != nil {
		return nil, err
	}
	if t.options.DryRun {
		return t.report(), t.devicesExist()
	}
	if t.programs() {
		change = switchXDP
	}
	switch {
	case t.trial > 0:
		tidy = tidyTrial
	case t.move != nil:
		tidy = tidyMove
	}
	ctx = context.WithoutCancel(ctx) // from the first change on, the apply cannot be interrupted
	if err := t.run(ctx, change); err != nil {
		return nil, err
	}
	if err := t.each(ctx, tidy); err != nil { // these steps do not change any verdict
		t.note(fmt.Sprintf("the next change removes what is left of the previous policy: %v", err))
	}
	return t.report(), nil
}

// confirming makes the policy on trial permanent: first its rulesets, whose confirmation can fail, then XDP. afterConfirm removes the parts that were
// inactive during the trial. If the process dies at any point, a packet that both policies drop is still dropped.
var (
	confirming = []step{
		{"keep the rulesets", (*transaction).confirmRulesets, nil},
		{"confirm the devices", (*transaction).confirmDevices, nil},
	}
	afterConfirm = []step{
		{"note that it stands", (*transaction).stands, nil},
		{"remove the rulesets before", (*transaction).finishRulesets, nil},
		{"remove stand-ins", (*transaction).dropStandIns, nil},
		{"forget generations before the last", (*transaction).forget, nil},
		{"give conntrack back", (*transaction).strictAsNext, nil},
	}
)

// confirm makes the policy on trial permanent.
func (t *transaction) confirm(ctx context.Context) error {
	t.next, t.manifest, t.rulesets = t.now, t.now.Manifest, t.now.Manifest.AllRulesets()
	t.number, t.returns, t.old = t.now.Number, t.live.Trial.Old, rulesetsOf(t.base)
	if err := t.run(ctx, confirming); err != nil {
		return err
	}
	t.final = true
	return t.each(ctx, afterConfirm)
}

// givingUp makes the policy before the trial decide in addition to the policy on trial. afterGivingUp ends the trial, first in XDP and then in
// netfilter.
var (
	givingUp = []step{
		{"wind down protections that end", (*transaction).windDown, nil},
		{"have rulesets before a trial decide", (*transaction).stepBack, nil},
	}
	afterGivingUp = []step{
		{"add connections made since", (*transaction).rejoinNext, nil},
		{"switch the devices", (*transaction).rollBackTrial, nil},
		{"remove the rulesets on trial", (*transaction).unloadRulesets, nil},
		{"remove the record", (*transaction).dropRecord, nil},
		{"give conntrack back", (*transaction).strictAsNext, nil},
		{"remove the state if it is empty", (*transaction).removeIfEmpty, nil},
	}
)

// giveUp ends a trial early.
func (t *transaction) giveUp(ctx context.Context) error {
	t.ended, t.tried = t.now, t.now.Number
	t.entered, t.old, t.next = t.now.Manifest.AllRulesets(), rulesetsOf(t.base), t.base
	if t.base != nil {
		t.manifest = t.base.Manifest
	}
	if err := t.run(ctx, givingUp); err != nil {
		return err
	}
	return t.each(ctx, afterGivingUp)
}

// goingBack returns from a confirmed policy to the one before it, in the order of switchXDP. The present programs and rulesets stay until the new
// ones decide.
var (
	goingBack = []step{
		{"find the policy before", (*transaction).findBefore, nil},
		{"go on with temporary rules", (*transaction).carryTemporary, nil},
		{"go on with bans", (*transaction).bansBack, nil},
		{"wind down protections that end", (*transaction).windDown, nil},
		{"fill its rulesets", (*transaction).refillRulesets, nil},
		{"make conntrack strict", (*transaction).beStrict, (*transaction).strictAsBefore},
		{"load the rulesets", (*transaction).loadRulesets, (*transaction).unloadRulesets},
		{"make conntrack strict that came with them", (*transaction).beStrict, nil},
		{"fill dynamic sets", (*transaction).holdBans, nil},
		{"say what this host has", (*transaction).refreshNext, nil},
		{"keep the rulesets", (*transaction).keepRulesets, nil},
		{"add connections made since", (*transaction).rejoinNext, nil},
		{"switch the devices", (*transaction).switchBack, (*transaction).switchAgain},
		{"remove the rulesets before", (*transaction).finishRulesets, nil},
	}
	afterGoingBack = []step{
		{"note that it stands", (*transaction).stands, nil},
		{"give conntrack back", (*transaction).strictAsNext, nil},
	}
)

// back returns from a confirmed policy to the one before it.
func (t *transaction) back(ctx context.Context) error {
	if err := t.run(ctx, goingBack); err != nil {
		return err
	}
	return t.each(ctx, afterGoingBack)
}

// exchanging replaces the contents of sets, first in netfilter, in one transaction, and then in XDP. If the process dies in between, the manifest
// still has the old contents, and the next exchange completes the change.
var exchanging = []step{
	{"check what the exchange is for", (*transaction).follows, nil},
	{"read what it was compiled from", (*transaction).readCompiled, nil},
	{"change the lists of it", (*transaction).changeLists, nil},
	{"exchange the sets of rulesets", (*transaction).exchangeSets, (*transaction).exchangeBack},
	{"keep what it is compiled from", (*transaction).keepLists, (*transaction).keepOldLists},
	{"renew the program, or the manifest", (*transaction).putLists, nil},
}

// exchange runs the steps of exchanging.
func (t *transaction) exchange(ctx context.Context) error { return t.run(ctx, exchanging) }

// repairing restores missing parts. Each step restores single parts, each one completely or not at all. So no step needs an undo, and the steps after
// a failed step still run.
var repairing = []step{
	{"give devices their programs", (*transaction).repairDevices, nil},
	{"give the program the addresses of this host", (*transaction).repairLocal, nil},
	{"give netfilter its rulesets", (*transaction).repairRulesets, nil},
	{"note what was put back", (*transaction).noteRepair, nil},
}

// repair restores the missing parts of the policy in force.
func (t *transaction) repair(ctx context.Context, at scope) error {
	g, err := t.live.InForce()
	if err != nil {
		return err
	}
	t.now, t.manifest, t.at, t.repaired = g, g.Manifest, at, &Repaired{Devices: []RepairedDevice{}, Rulesets: []RepairedRuleset{}}
	return t.each(ctx, repairing)
}

// mending completes or undoes the change of a command that died. XDP determines which policy decides. The rulesets must then be those of the same
// policy.
var mending = []step{
	{"note that it stands", (*transaction).stands, nil},
	{"take the place of the generation before", (*transaction).succeed, nil},
	{"give netfilter its rulesets", (*transaction).mendRulesets, nil},
	{"give netfilter its temporary rules", (*transaction).mendTemporary, nil},
	{"remove stand-ins, and what they stood for", (*transaction).cleanStandIns, nil},
}

// mend completes or undoes the change of a command that died. During a trial it does nothing, because two policies are normal then. If a ruleset is
// missing completely, another tool has removed it. mend restores such a ruleset only if restore is true.
func (t *transaction) mend(ctx context.Context, restore bool) error {
	t.restore = restore
	err := t.strictAsBefore(ctx)
	if !t.runs() || t.live.Trial != nil {
		return err
	}
	t.next, t.manifest, t.number = t.now, t.now.Manifest, t.now.Number
	return errors.Join(err, t.each(ctx, mending))
}

// finishingTrial removes the remains of a trial that timed out.
var finishingTrial = []step{
	{"note which trial has ended", (*transaction).keepEnded, nil},
	{"await the end of its rulesets", (*transaction).awaitEnd, nil},
	{"remove rulesets that do not decide", (*transaction).cleanRulesets, nil},
	{"add connections made since", (*transaction).rejoinNext, nil},
	{"give devices their own program", (*transaction).detachTrial, nil}, // the devices recognise the trial by the number of its record
	{"remove the record", (*transaction).dropRecord, nil},
	{"give conntrack back", (*transaction).strictAsBefore, nil},
}

// finishTrial removes the remains of the trial of a generation.
func (t *transaction) finishTrial(ctx context.Context, number int) error {
	t.tried, t.next = number, t.base
	return t.each(ctx, finishingTrial)
}
