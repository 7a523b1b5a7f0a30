// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/model/cost"
)

// stepCase is a command whose steps are made to fail, one after the other. Faults within a step are tested by TestFaults and similar tests.
type stepCase struct {
	name  string
	lists []string // the lists of its steps
	setup func(e *ends)
	do    func(e *ends) error

	// failed checks the state after a failed step. It returns true if the state is unchanged, so that setup need not run again.
	failed func(e *ends, when string, before string, err error) (asBefore bool)
}

var errStep = errors.New("this step fails")

// Some of the ways, by name.
var onXDP, beside, nft, ipt = ways[0], ways[1], ways[2], ways[3]

var stepCases = []stepCase{
	applyCase("from nothing to xdp beside netfilter", noWay, beside, 0, "decide", "loadXDP", "switchXDP", "tidyApply"),
	applyCase("xdp alone", onXDP, onXDP, 0, "switchXDP"),
	applyCase("on trial", beside, beside, time.Minute, "switchXDP", "tidyTrial"),
	applyCase("from nftables to nftables", nft, nft, 0, "loadNetfilter", "switchNetfilter", "tidyApply"),
	applyCase("from nftables to iptables", nft, ipt, 0, "switchNetfilter"),
	applyCase("from xdp to nftables", onXDP, nft, 0, "switchXDP", "tidyApply"),
	overTrialCase(beside, "switchXDP"),
	overTrialCase(nft, "switchNetfilter"),
	moveCase(plan.TargetNftables, "switchNetfilter", "tidyMove"),
	moveCase(plan.TargetXDP, "switchXDP", "tidyMove"),
	confirmCase(beside), confirmCase(nft),
	giveUpCase(beside), giveUpCase(nft),
	rollbackCase(beside), rollbackCase(nft),
	exchangeCase(beside), exchangeCase(nft),
	repairCase(beside), repairCase(nft),
	settleCase(beside), settleCase(nft),
}

// TestStepFaults makes each step of each list fail. Either nothing may change, or the change must be in force and the next command must complete it.
// At the end nothing may remain in the kernel.
func TestStepFaults(t *testing.T) {
	left := control.StepLists()
	for _, c := range stepCases {
		left = slices.DeleteFunc(left, func(list string) bool { return slices.Contains(c.lists, list) })
		onEnds(t, c.name, func(e *ends) { e.failSteps(c) })
	}
	if len(left) > 0 {
		t.Errorf("no command here goes through %v", left)
	}
}

func (e *ends) failSteps(c stepCase) {
	before, again := "", true
	for _, list := range c.lists {
		for i, name := range control.StepNames(list) {
			if again {
				c.setup(e)
				before = e.kernel()
			}
			when := list + ": " + name
			end := control.FailStep(list, i, errStep)
			err := c.do(e)
			if !end() {
				e.Errorf("%s: not come to (%v)", when, err)
			}
			if again = !c.failed(e, when, before, err); again {
				e.clear()
			}
			if e.Failed() {
				e.Fatal(when, err)
			}
		}
	}
	if !again {
		e.clear()
	}
}

// kernel returns the content of netfilter, and the names of the files in the state directory.
func (e *ends) kernel() string {
	e.Helper()
	pins, err := filepath.Glob(e.Dir + "/*")
	if err != nil {
		e.Fatal(err)
	}
	return e.ruleset() + strings.Join(pins, "\n")
}

func (e *ends) wantKernel(when, want string) {
	e.Helper()
	if diff := cmp.Diff(want, e.kernel()); diff != "" {
		e.Errorf("%s changes (-before +after):\n%s", when, diff)
	}
}

func (e *ends) applyWay(w way, name string, port int, trial time.Duration) {
	e.Helper()
	if _, err := e.try(w.policy(name, port), control.ApplyOptions{Target: w.target, Confirm: trial}); err != nil {
		e.Fatal(err)
	}
}

// settleAll runs the next command, which must complete the remaining work. After that the policy want must be in force, and no policy may be on
// trial.
func (e *ends) settleAll(when, want string) {
	e.Helper()
	if _, err := e.FinishTrial(e.Context()); err != nil {
		e.Errorf("%s, then settling: %v", when, err)
	}
	e.wantDecider(when+", then settled,", want)
	if s, err := e.Status(e.Context()); err != nil || s.Trial != nil {
		e.Errorf("%s, then settled: status %+v, %v", when, s, err)
	}
}

// applied checks the state after an apply of the policy new. The policy before was in force until then.
func applied(e *ends, when, kernel, before string, trial bool, err error) (asBefore bool) {
	e.Helper()
	if err == nil && trial {
		e.wantDecider(when, "new")
		return false
	}
	if err == nil { // a policy that will be removed may still decide beside it
		e.settleAll(when, "new")
		return false
	}
	if !errors.Is(err, errStep) {
		e.Errorf("%s says %v", when, err)
	}
	e.wantDecider(when, before)
	e.wantKernel(when, kernel)
	return true
}

func applyCase(name string, from, to way, trial time.Duration, lists ...string) stepCase {
	before := "old"
	if from == noWay {
		before = "nothing"
	}
	return stepCase{
		name: name, lists: lists,
		setup: func(e *ends) {
			if to.target == plan.TargetIptables { // the first apply creates tables that stay
				e.applyWay(to, "new", 2000, 0)
				e.clear()
			}
			if from != noWay {
				e.applyWay(from, "old", 1000, 0)
			}
		},
		do: func(e *ends) error {
			_, err := e.try(to.policy("new", 2000), control.ApplyOptions{Target: to.target, Confirm: trial})
			return err
		},
		failed: func(e *ends, when, kernel string, err error) bool {
			return applied(e, when, kernel, before, trial > 0, err)
		},
	}
}

// overTrialCase applies new while another policy is on trial. If a step fails, the trial must continue or must have ended.
func overTrialCase(w way, lists ...string) stepCase {
	return stepCase{
		name: "over a trial on " + w.name, lists: lists,
		setup: func(e *ends) {
			e.applyWay(w, "old", 1000, 0)
			e.applyWay(w, "tried", 1000, time.Minute)
		},
		do: func(e *ends) error {
			_, err := e.try(w.policy("new", 2000), control.ApplyOptions{Target: w.target})
			return err
		},
		failed: func(e *ends, when, _ string, err error) bool {
			want := "old" // drops the same packets as the policy on trial
			if err == nil {
				want = "new"
			} else if !errors.Is(err, errStep) {
				e.Errorf("%s says %v", when, err)
			}
			if s, statusErr := e.Status(e.Context()); statusErr != nil {
				e.Error(statusErr)
			} else if s.Trial != nil {
				if _, err := e.Rollback(e.Context()); err != nil || want == "new" {
					e.Errorf("%s: a trial goes on, or not rolled back: %v", when, err)
				}
			}
			e.settleAll(when, want)
			return false
		},
	}
}

// moveCase moves a rule back and forth.
func moveCase(target plan.Target, lists ...string) stepCase {
	stages, moves := "", 0
	return stepCase{
		name: "a move on " + string(target), lists: lists,
		setup: func(e *ends) {
			if _, err := e.try(published, control.ApplyOptions{Target: target, Costs: costs()}); err != nil {
				e.Fatal(err)
			}
			if moves = 0; strings.Contains(e.stages(), "published "+string(plan.StageFilter)) {
				moves = 1
			}
			stages = e.stages()
		},
		do: func(e *ends) error {
			m, err := e.Replace(e.Context(), costs(), []cost.Mix{quiet, attack}[moves])
			if err == nil && m == nil {
				e.Error("nothing has moved")
			}
			return err
		},
		failed: func(e *ends, when, kernel string, err error) bool {
			if e.passes(9, 1000) || e.passes(9, 1001) || !e.passes(9, 2001) {
				e.Errorf("%s: verdicts are others", when)
			}
			if err == nil {
				if _, err := e.FinishTrial(e.Context()); err != nil || e.stages() == stages {
					e.Errorf("%s: nothing has moved, or settling fails: %v", when, err)
				}
				return false
			}
			if !errors.Is(err, errStep) || e.stages() != stages {
				e.Errorf("%s says %v, and has moved rules to %s", when, err, e.stages())
			}
			e.wantKernel(when, kernel)
			return true
		},
	}
}

// confirmCase confirms new. If a step fails, another confirmation or the next command must complete the change.
func confirmCase(w way) stepCase {
	return stepCase{
		name: "confirm on " + w.name, lists: []string{"confirming", "afterConfirm"},
		setup: func(e *ends) { e.start(w, w, time.Minute) },
		do:    func(e *ends) error { _, err := e.Confirm(e.Context()); return err },
		failed: func(e *ends, when, _ string, err error) bool {
			if !errors.Is(err, errStep) {
				e.Errorf("%s says %v", when, err)
			}
			if _, err := e.Confirm(e.Context()); err != nil && !errors.Is(err, datapath.ErrNoTrial) { // netfilter without XDP confirms in one step
				e.Errorf("%s, then confirming again: %v", when, err)
			}
			e.settleAll(when, "new")
			return false
		},
	}
}

// giveUpCase ends a trial of new. If a step fails, another rollback or the next command must complete the change.
func giveUpCase(w way) stepCase {
	return stepCase{
		name: "give up on " + w.name, lists: []string{"givingUp", "afterGivingUp"},
		setup: func(e *ends) { e.start(w, w, time.Minute) },
		do:    func(e *ends) error { _, err := e.Rollback(e.Context()); return err },
		failed: func(e *ends, when, _ string, err error) bool {
			if !errors.Is(err, errStep) {
				e.Errorf("%s says %v", when, err)
			}
			if s, err := e.Status(e.Context()); err != nil {
				e.Error(err)
			} else if s.Trial != nil {
				if _, err := e.Rollback(e.Context()); err != nil {
					e.Errorf("%s, then again: %v", when, err)
				}
			}
			e.settleAll(when, "old")
			return false
		},
	}
}

// rollbackCase rolls back from new to old.
func rollbackCase(w way) stepCase {
	return stepCase{
		name: "rollback on " + w.name, lists: []string{"mending", "goingBack", "afterGoingBack"},
		setup: func(e *ends) {
			e.applyWay(w, "old", 1000, 0)
			e.applyWay(w, "new", 2000, 0)
			e.block(someBans()...)
		},
		do: func(e *ends) error { _, err := e.Rollback(e.Context()); return err },
		failed: func(e *ends, when, kernel string, err error) bool {
			if !errors.Is(err, errStep) {
				e.Errorf("%s says %v", when, err)
			}
			e.wantBlocked(when, someBlocked)
			if e.decider() == "old" { // the change could no longer be undone
				if strings.HasPrefix(when, "mending") {
					e.Errorf("%s: a policy that cannot be mended was left", when)
				}
				e.settleAll(when, "old")
				return false
			}
			e.wantDecider(when, "new")
			e.wantKernel(when, kernel)
			return true
		},
	}
}

// exchangeCase exchanges a list.
func exchangeCase(w way) stepCase {
	var l *lists
	return stepCase{
		name: "exchange on " + w.name, lists: []string{"exchanging"},
		setup: func(e *ends) {
			l = newLists(e)
			l.beside = w.beside
			l.serve("9.9.9.1\n")
			l.applyFetching(w)
			l.serve("9.9.9.2\n")
		},
		do: func(e *ends) error { _, err := e.SyncLists(e.Context(), true); return err },
		failed: func(e *ends, when, kernel string, err error) bool {
			if !errors.Is(err, errStep) {
				e.Errorf("%s says %v", when, err)
			}
			l.want(when, map[string]bool{"9.9.9.1": false, "9.9.9.2": true})
			e.wantKernel(when, kernel)
			return true
		},
	}
}

// repairCase restores a ruleset that another tool has removed.
func repairCase(w way) stepCase {
	return stepCase{
		name: "repair on " + w.name, lists: []string{"repairing"},
		setup: func(e *ends) {
			e.applyWay(w, "new", 2000, 0)
			m, err := e.Manifest(e.Context())
			if err != nil {
				e.Fatal(err)
			}
			e.run("nft", "delete", "table", "inet", m.Ruleset().Name)
		},
		do: func(e *ends) error { _, err := e.Repair(e.Context()); return err },
		failed: func(e *ends, when, _ string, err error) bool {
			if !errors.Is(err, errStep) {
				e.Errorf("%s says %v", when, err)
			}
			if _, err := e.Repair(e.Context()); err != nil {
				e.Errorf("%s, then repaired again: %v", when, err)
			}
			e.settleAll(when, "new")
			return false
		},
	}
}

// settleCase removes the remains of an unconfirmed trial.
func settleCase(w way) stepCase {
	return stepCase{
		name: "finish the trial on " + w.name, lists: []string{"finishingTrial"},
		setup: func(e *ends) {
			e.start(w, w, netfilter.MinTrial)
			e.awaitDecider("old")
			time.Sleep(netfilter.MinTrial) // the stand-ins stay for a moment
		},
		do: func(e *ends) error { _, err := e.FinishTrial(e.Context()); return err },
		failed: func(e *ends, when, _ string, err error) bool {
			if !errors.Is(err, errStep) {
				e.Errorf("%s says %v", when, err)
			}
			e.wantDecider(when, "old")
			e.settleAll(when, "old")
			return false
		},
	}
}
