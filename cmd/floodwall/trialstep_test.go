// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// killer is a script in place of a netfilter tool. It runs the tool and counts the runs. After the run whose number is STEP, it kills all processes
// of the command.
const killer = `#!/bin/sh
n=$(($(cat "$STEPS" 2>/dev/null) + 1))
echo $n >"$STEPS"
%s "$@"
status=$?
[ $n -ne "$STEP" ] || kill -KILL 0
exit $status
`

// stepTools are the programs that a command of floodwall may start.
var stepTools = []string{"nft", "iptables-restore", "ip6tables-restore", "iptables-save", "ip6tables-save", "ipset"}

// scripts makes a directory with a copy of a script in place of each netfilter tool, and returns its path. %s in the script is the path of the tool.
func scripts(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	for _, tool := range stepTools {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, tool), fmt.Appendf(nil, script, path), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// unharmed is the step number for a command that is not killed.
const unharmed = 0

// stepsFile returns the path of the file in which the killer scripts count their runs.
func (h *trialHost) stepsFile() string { return filepath.Join(h.files, "steps") }

// steps returns the number of tools that the last command ran.
func (h *trialHost) steps() (n int) {
	text, err := os.ReadFile(h.stepsFile())
	if err == nil {
		_, err = fmt.Sscan(string(text), &n)
	}
	if err != nil {
		h.wrong("no tool of netfilter was counted: %v", err)
	}
	return n
}

// killAt runs floodwall, and kills it after it has run the given number of netfilter tools. It returns true if the command ended before.
func (h *trialHost) killAt(killers string, step int, args ...string) (done bool, err error) {
	steps := h.stepsFile()
	os.Remove(steps)
	err = h.host.do(func() error {
		cmd := h.command(args...)
		cmd.Env = append(os.Environ(), "PATH="+killers+":"+os.Getenv("PATH"), "STEPS="+steps, fmt.Sprintf("STEP=%d", step))
		out, err := cmd.CombinedOutput()
		if done = err == nil; !done && cmd.ProcessState.ExitCode() != killed {
			return fmt.Errorf("floodwall %s: %w\n%s", args[0], err, out)
		}
		return nil
	})
	return done, err
}

// TestKilledAtSteps kills `apply --confirm`, `confirm` and `rollback` after each of their steps in netfilter. TestTrialKilled and TestKilledEnding
// kill commands at random points, so they may miss the few most delicate moments.
func TestKilledAtSteps(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	dir := scripts(t, killer)
	var ends tally
	hosts := testutil.Scaled(1, 6)
	onHosts(t, []layout{companion, nftables, iptables}, hosts, func(h *trialHost) {
		for _, command := range []string{"apply", "confirm", "rollback"} {
			ends.add(h.killStep(dir, command, unharmed))
			steps := h.steps()
			kills := h.kills(command, steps)
			for i := h.number; i < kills; i += hosts {
				first, next := i*steps/kills, (i+1)*steps/kills
				ends.add(h.killStep(dir, command, 1+first+h.random.IntN(next-first)))
			}
		}
	})
	for what, n := range ends.counts {
		t.Logf("%d times: %s", n, what)
	}
}

// kills returns the number of steps of a command at which the command is killed, for all hosts of a layout. In the short form, an apply that uses
// both XDP and netfilter gets the largest number, because it has the most delicate steps.
func (h *trialHost) kills(command string, steps int) int {
	switch {
	case testutil.Long():
		return steps
	case h.layout.name == companion.name && command == "apply":
		return min(3, steps)
	}
	return 1
}

// between reports whether who is an allowed result after a confirmation was killed between XDP and netfilter. No single step can confirm both. Until
// the next command, netfilter drops packets that either policy drops.
func (h *trialHost) between(who string) bool {
	return h.layout.name == companion.name && (who == stricter || who == twin)
}

// stepTrial is the length of a trial that is ended at a step.
const stepTrial = 3 * time.Second

// killStep kills a command after a step. On a slow machine, the trial may end before the command reaches that step. Then killStep tries again with a
// longer trial.
func (h *trialHost) killStep(dir, command string, step int) (end string) {
	for trial := stepTrial; ; trial *= 2 {
		end, late := h.killStepIn(trial, dir, command, step)
		if !late || trial > time.Minute {
			return end
		}
	}
}

func (h *trialHost) killStepIn(trial time.Duration, dir, command string, step int) (end string, late bool) {
	h.enter("%s killed after step %d", command, step)
	args := []string{command}
	if command == "apply" {
		trial = shortTrial
		args = h.applying(next, "--confirm", trial.String())
	} else {
		h.apply(next, "--confirm", trial.String())
	}
	deadline := time.Now().Add(trial)
	_, err := h.killAt(dir, step, args...)
	if err != nil && regexp.MustCompile("the trial has expired|no policy is on trial").MatchString(err.Error()) {
		h.apply(old)
		return "", true
	}
	if err != nil {
		h.wrong("%v", err)
	}
	if command == "apply" {
		deadline = time.Now().Add(trial)
	}
	then := h.decides()
	fine := func(who string) bool { return who == old || command == "confirm" && (who == next || h.between(who)) }
	who := h.settled(deadline, fine)
	if !fine(who) {
		h.wrong("after the deadline %s decides, and right after the kill %s", who, then)
	}
	h.enter("%s, next is apply", h.doing)
	h.apply(old)
	h.straight("after the next apply", old)
	how := command
	if step == unharmed {
		how += " unharmed"
	}
	return fmt.Sprintf("%s: %s, right after it %s, then %s", h.layout.name, how, short(then), short(who)), false
}
