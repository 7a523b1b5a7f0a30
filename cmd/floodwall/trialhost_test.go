// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pace has the durations of recent commands, which are longer on a busy machine. All hosts of a layout share it.
type pace struct {
	mu    sync.Mutex
	takes map[string]time.Duration
}

func (p *pace) learn(command string, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.takes[command] == 0 {
		p.takes[command] = took
	}
	p.takes[command] = (3*p.takes[command] + took) / 4
}

// point returns the time after which to kill a command. If the command's duration was not measured, the duration of an apply is used.
func (p *pace) point(random *rand.Rand, command string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if takes := p.takes[command]; takes > 0 {
		return point(random, takes)
	}
	return point(random, p.takes["apply"])
}

// leaves returns a time in whole seconds that is long enough for a command on this machine. It is least, or longer if the machine is busy.
func (p *pace) leaves(least time.Duration, command string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(least, 3*p.takes[command]).Round(time.Second)
}

// trialHost is a host in a network namespace of its own, on which Floodwall runs.
type trialHost struct {
	layout
	*trialWire
	name     string
	number   int // its number in the layout
	turn     int // its number among all hosts of the test
	random   *rand.Rand
	bpffs    string
	files    string // the directory of the policies, and of --state
	pace     *pace
	messages []string // descriptions of failures
}

// newTrialHost makes a host. The old policy is applied and confirmed twice, so that a rollback has a previous policy.
func newTrialHost(t *testing.T, in layout, pace *pace, number, turn int, seed uint64) *trialHost {
	t.Helper()
	name := fmt.Sprintf("%s %d", in.name, number)
	host, err := newNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.file.Close() })
	if err := host.do(cable); err != nil {
		t.Fatal(err)
	}
	w, err := newWire(host, in.probes(always))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	h := &trialHost{
		layout: in, trialWire: w, name: name, number: number, turn: turn, pace: pace, random: rand.New(rand.NewPCG(seed, uint64(turn))),
		bpffs: fmt.Sprintf("/sys/fs/bpf/%s%d", strings.ReplaceAll(in.name, " ", "-"), number), files: t.TempDir(),
	}
	old, new := in.policies()
	for file, text := range map[string]string{"old.yaml": old, "new.yaml": new} {
		if err := os.WriteFile(filepath.Join(h.files, file), []byte("devices: [fw0]"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// cable makes the host's device and connects it with its far end.
func cable() error {
	for _, line := range []string{
		"link add fw0 address 02:00:00:00:00:02 type veth peer name fw1",
		"addr add 192.0.2.1/24 dev fw0", "addr add 2001:db8::1/64 dev fw0 nodad",
		"link set lo up", "link set fw0 up", "link set fw1 up",
	} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, out)
		}
	}
	return nil
}

// command returns a floodwall command on this host, in a process group of its own.
func (h *trialHost) command(args ...string) *exec.Cmd {
	cmd := exec.Command("floodwall", append(args, "--bpffs", h.bpffs, "--state", filepath.Join(h.files, "state"))...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	return cmd
}

// applying returns the arguments of the command that applies a policy. The parameter policy is "old" or "new".
func (h *trialHost) applying(policy string, flags ...string) []string {
	target := h.old
	if policy == "new" {
		target = h.new
	}
	return slices.Concat([]string{"apply", filepath.Join(h.files, policy+".yaml")}, target, flags)
}

// run runs floodwall. It returns the output, and an error if floodwall failed.
func (h *trialHost) run(args ...string) (out string, err error) {
	doErr := h.host.do(func() error {
		var b []byte
		b, err = h.command(args...).CombinedOutput()
		out = string(b)
		return nil
	})
	return out, errors.Join(err, doErr)
}

// must runs floodwall, and records a failure if floodwall fails.
func (h *trialHost) must(args ...string) string {
	out, err := h.run(args...)
	if err != nil {
		h.wrong("floodwall %s: %v\n%s", strings.Join(args[:1], " "), err, out)
	}
	return out
}

// apply applies a policy, which must succeed. It records the duration in pace.
func (h *trialHost) apply(policy string, flags ...string) {
	start := time.Now()
	h.must(h.applying(policy, flags...)...)
	h.pace.learn("apply", time.Since(start))
}

// kill starts floodwall. After a time it kills floodwall and all processes that floodwall started. done is true if floodwall ended before.
func (h *trialHost) kill(after time.Duration, args ...string) (done bool, err error) {
	err = h.host.do(func() error {
		cmd := h.command(args...)
		var output strings.Builder
		cmd.Stdout, cmd.Stderr = &output, &output
		if err := cmd.Start(); err != nil {
			return err
		}
		start := time.Now()
		ended := make(chan struct{})
		go func() { cmd.Wait(); close(ended) }()
		select {
		case <-ended:
			h.pace.learn(args[0], time.Since(start))
		case <-time.After(after):
		}
		// Processes that floodwall started and left running are in the same process group.
		if err := unix.Kill(-cmd.Process.Pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
		<-ended
		done = cmd.ProcessState.Success()
		if !done && cmd.ProcessState.ExitCode() != killed {
			h.wrong("floodwall %s ends by itself with status %d\n%s", args[0], cmd.ProcessState.ExitCode(), &output)
		}
		return nil
	})
	return done, err
}

func (h *trialHost) wrong(format string, args ...any) {
	h.mu.Lock()
	doing := h.doing
	h.mu.Unlock()
	if len(h.messages) < 12 {
		h.messages = append(h.messages, fmt.Sprintf("%s: %s: ", h.name, doing)+fmt.Sprintf(format, args...))
	}
}

// The answers of decides. It also returns descriptions of a mixture of both policies.
const (
	old        = "old"
	next       = "new"
	twin       = "both" // packets that either policy drops are dropped
	unfiltered = "neither"
	open       = "nothing"
	stricter   = "one, and beside it netfilter's part of the other" // packets that both policies drop are dropped, and packets that both pass, pass
	mixture    = "a mixture: what passes is "                       // followed by the passing packets
)

// decides determines with packets which policy decides.
func (h *trialHost) decides() string {
	probes := h.probes(always)
	if h.tagged != nil {
		probes = append(probes, behindTags()...)
	}
	passed, err := h.ask(probes, probe{port: both})
	if err != nil {
		return err.Error()
	}
	if who := h.decider(passed); who != "" && h.lets(passed, who) {
		return who
	}
	var list []string
	for p := range passed {
		list = append(list, p.String())
	}
	slices.Sort(list)
	return mixture + strings.Join(list, ", ")
}

// decider determines which policy decides, from the packets without VLAN tags that passed. It returns "" if no answer fits.
func (h *trialHost) decider(passed map[probe]bool) string {
	passes := func(kind int, all bool) bool { // all of a kind pass, or none
		of := h.probes(func(k int) bool { return k == kind })
		return !slices.ContainsFunc(of, func(p probe) bool { return passed[p] != all })
	}
	switch {
	case !passes(both, true):
	case passes(neither, true) && passes(onlyOld, true) && passes(onlyNew, true):
		return open
	case !passes(neither, false):
	case passes(onlyOld, true) && passes(onlyNew, false):
		return old
	case passes(onlyOld, false) && passes(onlyNew, true):
		return next
	case passes(onlyOld, false) && passes(onlyNew, false):
		return twin
	case passes(onlyOld, true) && passes(onlyNew, true):
		return unfiltered
	case passes(onlyOld, false), passes(onlyNew, false):
		return stricter
	}
	return ""
}

// want checks that a certain policy decides.
func (h *trialHost) want(when, who string) {
	if got := h.decides(); got != who {
		h.wrong("%s: %s decides, not %s", when, got, who)
	}
}

// straight checks that a certain policy decides. If another one decides, straight records the error and sets the host up again, so that the error is
// recorded only once.
func (h *trialHost) straight(when, who string) {
	got := h.decides()
	if got == who {
		return
	}
	h.wrong("%s: %s decides, not %s", when, got, who)
	h.apply(who)
	if h.decides() == who {
		return
	}
	h.enter("starting anew")
	h.run("unload")
	h.apply(who)
}

// clean unloads the policy, and checks that nothing is left in netfilter.
func (h *trialHost) clean() {
	h.enter("unload")
	h.must("unload")
	h.host.do(func() error {
		for _, list := range []string{"nft list ruleset", "iptables-save", "ip6tables-save", "ipset list"} {
			words := strings.Fields(list)
			out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
			if err != nil || strings.Contains(strings.ToLower(string(out)), "floodwall") {
				h.wrong("%s: %v\n%s", list, err, out)
			}
		}
		return nil
	})
}
