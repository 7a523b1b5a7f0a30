// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
)

// sleeper is a script in place of a netfilter tool. When an input contains WORD for the TIMES-th time, the script sleeps before it runs the tool, as
// may happen on a busy machine. After LATER further runs of tools, it kills all processes of the command.
const sleeper = `#!/bin/sh
count() { n=$(($(cat "$STEPS.$1" 2>/dev/null) + 1)); echo $n >"$STEPS.$1"; }
case "$*" in
*"-f -"* | *restore*)
	cat >"$STEPS.input"
	grep -q -- "$WORD" "$STEPS.input" && count word && [ $n -eq "$TIMES" ] && sleep "$DELAY" && echo -1 >"$STEPS.after"
	%[1]s "$@" <"$STEPS.input"
	;;
*) %[1]s "$@" ;;
esac
status=$?
[ ! -e "$STEPS.after" ] || { count after; [ $n -lt "$LATER" ] || kill -KILL 0; }
exit $status
`

// delayed describes an apply with one delayed run of a tool. A number of runs later, the apply is killed.
type delayed struct {
	word  string // a word in the input of the delayed run
	times int    // the number of the delayed run among the runs whose input contains the word
	later int    // the number of runs after which the apply is killed
	plain bool   // the apply has no --confirm
}

func (d delayed) String() string {
	if d.plain {
		return fmt.Sprintf("plain apply, delayed at %s %d, killed %d runs later", d.word, d.times, d.later)
	}
	return fmt.Sprintf("apply, delayed at %s %d, killed %d runs later", d.word, d.times, d.later)
}

// delays returns the runs to delay in a layout: runs in which new rules start to decide, and runs in which old rules are set aside.
func (l layout) delays() (list []delayed) {
	trial, aside := "elements = .*ipv4 timeout", "_superseded"
	if l.name == iptables.name {
		trial, aside = "add .*-trial4", "add .*-aside4"
	}
	list = []delayed{{aside, 1, 0, false}, {trial, 2, 0, false}}
	if l.name == companion.name {
		list = append(list, delayed{aside, 1, 1, false}, delayed{trial, 1, 1, true})
	}
	if testutil.Long() {
		for later := range 9 {
			for times := 1; times <= 3; times++ {
				list = append(list, delayed{aside, times, later, false}, delayed{trial, times, later, false}, delayed{trial, times, later, true})
			}
		}
	}
	return list
}

// TestKilledAfterDelay kills applies after one of their steps has taken long. At no time may a packet pass that both policies drop. The kernel's
// deadlines must be in this order: first the old rules of netfilter return, then the XDP program returns, and then the new rules of netfilter end.
func TestKilledAfterDelay(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	dir := scripts(t, sleeper)
	onHosts(t, []layout{companion, nftables, iptables}, 1, func(h *trialHost) {
		for _, d := range h.delays() {
			h.killDelayed(dir, d)
		}
	})
}

// TestAppliedOverTrial applies a policy while another one is on trial. The applied policy is the old one, or the new one again. In the long form,
// each layout tests both. No packet may pass that all policies drop.
func TestAppliedOverTrial(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	onHosts(t, []layout{companion, nftables, iptables}, 1, func(h *trialHost) {
		policies := []string{old, next}
		if !testutil.Long() && h.layout.name != companion.name { // which has both places
			policies = policies[h.turn%2:][:1]
		}
		for _, policy := range policies {
			h.enter("%s applied over a trial", policy)
			h.apply(next, "--confirm", "1m")
			h.want("on trial", next)
			h.apply(policy)
			h.want("applied over it", policy)
			h.apply(old)
		}
	})
}

func (h *trialHost) killDelayed(tools string, d delayed) {
	h.enter("%v", d)
	args := h.applying(next)
	if !d.plain {
		args = append(args, "--confirm", shortTrial.String())
	}
	left, err := filepath.Glob(h.stepsFile() + ".*")
	for _, file := range left {
		err = errors.Join(err, os.Remove(file))
	}
	if err != nil {
		h.wrong("%v", err)
	}
	err = h.host.do(func() error {
		cmd := h.command(args...)
		cmd.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"), "STEPS="+h.stepsFile(), "DELAY=1.5",
			"WORD="+d.word, fmt.Sprint("TIMES=", d.times), fmt.Sprint("LATER=", d.later))
		out, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState.ExitCode() != killed {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
	if err != nil {
		h.wrong("%v", err)
	}
	h.ordered()
	if !d.plain {
		if who := h.settled(time.Now().Add(shortTrial), func(who string) bool { return who == old }); who != old {
			h.wrong("after the deadline %s decides", who)
		}
	}
	h.enter("%s, next is apply", h.doing)
	h.apply(old)
	h.straight("after the next apply", old)
}

// clock returns the time of CLOCK_MONOTONIC, which the XDP program also reads.
func clock() time.Duration {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail with this clock
	return time.Duration(t.Nano())
}

// programEnds returns the deadline, in the time of clock, at which the XDP program on trial returns to the previous program. ok is false if there is
// no program on trial.
func (h *trialHost) programEnds() (deadline time.Duration, ok bool) {
	pins, _ := filepath.Glob(filepath.Join(h.bpffs, "trial-*", "term"))
	for _, pin := range pins {
		m, err := ebpf.LoadPinnedMap(pin, nil)
		if err != nil {
			h.wrong("%v", err)
			continue
		}
		defer m.Close()
		var term [2]uint64 // struct term of bpf/trial.c
		if err := m.Lookup(uint32(0), &term); err != nil {
			h.wrong("%v", err)
		}
		deadline, ok = time.Duration(term[0]), true
	}
	return deadline, ok
}

var expires = regexp.MustCompile(`expires (\w+)`)

// setEnds returns the earliest and the latest time, in the time of clock, at which an element of a guard's set in nftables expires. An expired
// element counts as time 0. ok is false if no such set exists, or no rule uses it.
func (h *trialHost) setEnds(set string) (earliest, latest time.Duration, ok bool) {
	before := clock()
	out, err := h.output("nft", "list", "ruleset", "inet")
	after := clock()
	if err != nil {
		h.wrong("%v", err)
	}
	if !strings.Contains(out, "@"+set) { // no rule uses the set
		return 0, 0, false
	}
	_, text, ok := strings.Cut(out, "set "+set+" {")
	text, _, _ = strings.Cut(text, "\n\t}")
	if m := expires.FindStringSubmatch(text); m != nil {
		left, err := time.ParseDuration(m[1])
		if err != nil {
			h.wrong("%v", err)
		}
		return before + left, after + left, true
	}
	return 0, 0, ok
}

// output runs a program on this host and returns its output.
func (h *trialHost) output(name string, args ...string) (out string, err error) {
	doErr := h.host.do(func() error {
		var b []byte
		b, err = exec.Command(name, args...).CombinedOutput()
		out = string(b)
		return nil
	})
	return out, errors.Join(err, doErr)
}

// ordered checks the order of the kernel's deadlines: first the old rules of netfilter must return, then the XDP program, and then the new rules of
// netfilter must end.
func (h *trialHost) ordered() {
	program, ok := h.programEnds()
	if !ok || program < clock() {
		return
	}
	if from, _, ok := h.setEnds("_superseded"); ok && from > program {
		h.wrong("the old rules of nftables return %v after the XDP program", (from - program).Round(time.Millisecond))
	}
	if _, to, ok := h.setEnds("_trial"); ok && to < program {
		h.wrong("the new rules of nftables end %v before the XDP program returns", (program - to).Round(time.Millisecond))
	}
}
