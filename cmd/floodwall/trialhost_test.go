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
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The ports of trials. Tens of thousands tell which policy passes them.
const (
	onlyOld = 1000
	onlyNew = 2000
	both    = 3000
	neither = 4000
)

// layout is where the two policies of a trial run.
type layout struct {
	name     string
	old, new []string // the arguments of apply, without the policy
	stateful bool     // the policies have rules that need conntrack
}

var (
	xdpAlone  = layout{"xdp", []string{"--target", "xdp"}, []string{"--target", "xdp"}, false}
	generic   = layout{"xdp generic", []string{"--target", "xdp", "--mode", "generic"}, []string{"--target", "xdp", "--mode", "generic"}, false}
	companion = layout{"xdp with nftables", []string{"--target", "xdp"}, []string{"--target", "xdp"}, true}
	nftables  = layout{"nftables", []string{"--target", "nftables"}, []string{"--target", "nftables"}, true}
	iptables  = layout{"iptables", []string{"--target", "iptables"}, []string{"--target", "iptables"}, true}
)

// Policies that differ in what they pass, and in where they drop what neither passes: ports ending in 1 are dropped
// where conntrack is known, 4002 there by the new one only, 4003 by the old one only.
const (
	oldPlain = `
default: pass
rules:
  - {name: old, proto: udp, port: [2000, 4000], then: drop}
`
	newPlain = `
default: drop
rules:
  - {name: new, proto: udp, port: [2000, 3000], then: pass}
`
	oldStateful = `
default: pass
rules:
  - {name: old, proto: udp, port: [2000, 4000, 4002], then: drop}
  - {name: old-state, proto: udp, port: [2001, 4001, 4003], state: [new, established], then: drop}
`
	newStateful = `
default: pass
rules:
  - {name: new, proto: udp, port: [1000, 4000, 4003], then: drop}
  - {name: new-state, proto: udp, port: [1001, 4001, 4002], state: [new, established], then: drop}
`
)

// ports are those that the layout's policies know.
func (l layout) ports() []int {
	if l.stateful {
		return []int{1000, 1001, 2000, 2001, 3000, 3001, 4000, 4001, 4002, 4003}
	}
	return []int{1000, 2000, 3000, 4000}
}

// probes are packets to these ports, of both families, for which is holds.
func (l layout) probes(is func(kind int) bool) (list []probe) {
	for _, port := range l.ports() {
		if is(port / 1000 * 1000) {
			list = append(list, probe{false, port}, probe{true, port})
		}
	}
	return list
}

func always(int) bool { return true }

// trialHost is a Floodwall in a network namespace of its own.
type trialHost struct {
	layout
	*wire
	name     string
	random   *rand.Rand
	bpffs    string
	files    string // the directory of the policies, and of --state
	takes    time.Duration
	messages []string // what went wrong
}

// newTrialHost makes a host with the old policy applied and confirmed, twice: there is one to roll back to.
func newTrialHost(t *testing.T, in layout, number int, seed uint64) *trialHost {
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
		layout: in, wire: w, name: name, random: rand.New(rand.NewPCG(seed, uint64(number))),
		bpffs: fmt.Sprintf("/sys/fs/bpf/%s%d", strings.ReplaceAll(in.name, " ", "-"), number), files: t.TempDir(),
	}
	old, new := oldPlain, newPlain
	if in.stateful {
		old, new = oldStateful, newStateful
	}
	for file, text := range map[string]string{"old.yaml": old, "new.yaml": new} {
		if err := os.WriteFile(filepath.Join(h.files, file), []byte("devices: [fw0]"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// cable lays the cable of a host.
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

// command is floodwall on this host, in a process group of its own.
func (h *trialHost) command(args ...string) *exec.Cmd {
	cmd := exec.Command("floodwall", append(args, "--bpffs", h.bpffs, "--state", filepath.Join(h.files, "state"))...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	return cmd
}

// applying is the apply of a policy, "old" or "new".
func (h *trialHost) applying(policy string, flags ...string) []string {
	target := h.old
	if policy == "new" {
		target = h.new
	}
	return slices.Concat([]string{"apply", filepath.Join(h.files, policy+".yaml")}, target, flags)
}

// run runs floodwall, and returns its output and how it ended.
func (h *trialHost) run(args ...string) (out string, err error) {
	doErr := h.host.do(func() error {
		var b []byte
		b, err = h.command(args...).CombinedOutput()
		out = string(b)
		return nil
	})
	return out, errors.Join(err, doErr)
}

// must runs floodwall and notes when it does not succeed.
func (h *trialHost) must(args ...string) string {
	out, err := h.run(args...)
	if err != nil {
		h.wrong("floodwall %s: %v\n%s", strings.Join(args[:1], " "), err, out)
	}
	return out
}

// apply applies a policy that succeeds, and learns how long that takes.
func (h *trialHost) apply(policy string, flags ...string) {
	start := time.Now()
	h.must(h.applying(policy, flags...)...)
	h.learn(time.Since(start))
}

func (h *trialHost) learn(took time.Duration) {
	if h.takes == 0 {
		h.takes = took
	}
	h.takes = (3*h.takes + took) / 4
}

// kill starts floodwall and ends it, and all that it started, after so long.
func (h *trialHost) kill(after time.Duration, args ...string) (done bool, err error) {
	err = h.host.do(func() error {
		cmd := h.command(args...)
		if err := cmd.Start(); err != nil {
			return err
		}
		start := time.Now()
		ended := make(chan struct{})
		go func() { cmd.Wait(); close(ended) }()
		select {
		case <-ended:
			h.learn(time.Since(start))
		case <-time.After(after):
		}
		// Those that a process left behind are in its group too.
		if err := unix.Kill(-cmd.Process.Pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
		<-ended
		done = cmd.ProcessState.Success()
		if !done && cmd.ProcessState.ExitCode() != killed {
			h.wrong("floodwall %s ends by itself with status %d", args[0], cmd.ProcessState.ExitCode())
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

// Answers of decides, besides those that describe a mixture.
const (
	old  = "old"
	next = "new"
	twin = "both" // what either drops is dropped
	open = "neither"
)

// decides tells by packets which policy decides.
func (h *trialHost) decides() string {
	passed, err := h.ask(h.probes(always), probe{false, both})
	if err != nil {
		return err.Error()
	}
	passes := func(kind int, all bool) bool { // all of a kind pass, or none
		return !slices.ContainsFunc(h.probes(func(k int) bool { return k == kind }), func(p probe) bool { return passed[p] != all })
	}
	switch {
	case !passes(both, true) || !passes(neither, false):
	case passes(onlyOld, true) && passes(onlyNew, false):
		return old
	case passes(onlyOld, false) && passes(onlyNew, true):
		return next
	case passes(onlyOld, false) && passes(onlyNew, false):
		return twin
	case passes(onlyOld, true) && passes(onlyNew, true):
		return open
	}
	var list []string
	for p := range passed {
		list = append(list, p.String())
	}
	slices.Sort(list)
	return "a mixture: what passes is " + strings.Join(list, ", ")
}

// want checks which policy decides.
func (h *trialHost) want(when, who string) {
	if got := h.decides(); got != who {
		h.wrong("%s: %s decides, not %s", when, got, who)
	}
}

// clean unloads, and looks for what is left in netfilter.
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
