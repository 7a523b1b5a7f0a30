// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// hide makes programs unusable until show is called.
func (h *host) hide(tools ...string) (show func()) {
	h.Helper()
	var hidden []string
	for _, tool := range tools {
		path, err := exec.LookPath(tool)
		if err == nil {
			path, err = filepath.EvalSymlinks(path)
		}
		if err == nil {
			err = unix.Mount("/dev/null", path, "", unix.MS_BIND, "")
		}
		if err != nil {
			h.Fatalf("hiding %s: %v", tool, err)
		}
		hidden = append(hidden, path)
	}
	return func() {
		for _, path := range hidden {
			if err := unix.Unmount(path, 0); err != nil {
				h.Errorf("showing %s: %v", path, err)
			}
		}
	}
}

// wantTarget applies a policy with the target auto. It checks the chosen target and the stated reason.
func (h *host) wantTarget(policy string, want plan.Target, why string) {
	h.Helper()
	applied, err := h.try(policy, control.ApplyOptions{})
	if err != nil {
		h.Fatal(err)
	}
	s, err := h.Status(context.Background())
	if err != nil {
		h.Fatal(err)
	}
	if applied.Target != want || s.Target != want || applied.Choice != s.Choice || !strings.Contains(s.Choice, why) {
		h.Errorf("target %s (%s), status says %s (%s), want %s, because of %q", applied.Target, applied.Choice, s.Target, s.Choice, want, why)
	}
}

// plain are policies that every target supports. The first consists only of a default.
var plain = []string{"", "default: drop", "rules: [{name: a, proto: udp, port: 1000, then: drop}]"}

// TestEmptyPolicy applies nearly empty policies on each target. They must run like other policies. In the short form, each policy but the first runs
// on one target only.
func TestEmptyPolicy(t *testing.T) {
	e := newEnds(t)
	if e == nil {
		return
	}
	for at, target := range allTargets {
		for i, policy := range plain {
			if i > 0 && at != i && !testutil.Long() {
				continue
			}
			if _, err := e.try(policy, control.ApplyOptions{Target: target}); err != nil {
				t.Fatalf("%s: %q: %v", target, policy, err)
			}
			if s, err := e.Status(t.Context()); err != nil || s.Target != target || len(s.Devices) != 1 || s.Devices[0].Name != "fw0" {
				t.Fatalf("%s: %q: status %+v, %v", target, policy, s, err)
			}
			if _, err := e.try(policy, control.ApplyOptions{Target: target, Confirm: time.Minute}); err != nil {
				t.Fatalf("%s: %q: %v", target, policy, err)
			}
			if _, err := e.Confirm(t.Context()); err != nil {
				t.Fatalf("%s: %q: confirm: %v", target, policy, err)
			}
		}
		e.clear()
	}
}

// TestChoice applies a policy with target auto: while other programs occupy XDP and tc, then also without nft, and then without netfilter.
func TestChoice(t *testing.T) {
	e := newEnds(t)
	if e == nil {
		return
	}
	const stateless, stateful = "rules: [{name: a, proto: udp, port: 1000, then: drop}]", "rules: [{name: a, proto: udp, port: 1000, state: new, then: drop}]"
	const text = "rules: [{name: text, proto: udp, payload: {contains: evil}, then: drop}]"
	const onlyXDP = "rules: [{name: names, dns: {name: evil.example}, then: drop}]"
	e.wantTarget(stateless, plan.TargetXDP, "first choice")
	e.wantTarget(stateful, plan.TargetXDP, "first choice")
	if s, _ := e.Status(t.Context()); s.Rules[0].Stage != plan.StageFilter {
		t.Errorf("a rule about state is at %s", s.Rules[0].Stage)
	}
	e.clear()
	detach, err := testutil.Occupy("fw0")
	if err != nil {
		t.Fatal(err)
	}
	defer detach()
	e.wantTarget(stateless, plan.TargetNftables, "not xdp: attaching to device fw0: another XDP program is attached")
	var refused *datapath.AttachError
	if _, err := e.try(stateless, control.ApplyOptions{Target: plan.TargetXDP}); !errors.As(err, &refused) {
		t.Errorf("target xdp, where a program is attached: %v", err)
	}
	if s, err := e.Status(t.Context()); err != nil || s.Target != plan.TargetNftables || s.Generation != 1 {
		t.Errorf("after an apply that failed: %+v, %v", s, err)
	}
	e.clear()
	e.wantTarget(text, plan.TargetIptables, "not nftables:")
	e.clear()
	var hint interface{ Hint() string }
	_, err = e.try(onlyXDP, control.ApplyOptions{})
	for _, part := range []string{"xdp: attaching", `rule "names": dns`} {
		if err == nil || !strings.Contains(err.Error(), part) || !errors.As(err, &hint) || !strings.Contains(hint.Hint(), "XDP") {
			t.Errorf("with a policy that only XDP can do: %v, want it to say %q", err, part)
		}
	}
	showNft := e.hide("nft")
	e.wantTarget(stateless, plan.TargetIptables, "not nftables:")
	if err := e.Unload(t.Context()); err != nil {
		t.Fatal(err)
	}
	showIptables := e.hide("iptables-restore")
	_, err = e.try(stateless, control.ApplyOptions{})
	for _, part := range []string{"xdp: attaching", "nftables: ", "iptables: "} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("with no target at all: %v, want it to say %q", err, part)
		}
	}
	detach()
	e.wantTarget(stateless, plan.TargetXDP, "first choice")
	if _, err := e.try(stateful, control.ApplyOptions{Target: plan.TargetXDP}); err == nil || !strings.Contains(err.Error(), `rule "a"`) {
		t.Errorf("a policy with state where there is no nft: %v", err)
	}
	showNft()
	showIptables()
	e.clear()
	defer e.hide("ipset")()
	if _, err := e.try(banPolicy(10, "bans"), control.ApplyOptions{Target: plan.TargetIptables}); !errors.As(err, &hint) || !strings.Contains(hint.Hint(), "ipset") {
		t.Errorf("iptables without ipset: %v", err)
	}
}

// TestLargeFrames applies a policy to a device on which XDP cannot run in native mode.
func TestLargeFrames(t *testing.T) {
	e := newEnds(t)
	if e == nil {
		return
	}
	e.ip("link set fw1 mtu 9000", "link set fw0 mtu 9000")
	applied, err := e.try(plain[2], control.ApplyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s (%s) %+v", applied.Target, applied.Choice, applied.Devices)
	if e.passes(9, 1000) || !e.passes(9, 2000) {
		t.Error("the policy does not decide")
	}
}

// others is a script that creates rules of another program, of all kinds that Floodwall uses.
const others = `
nft 'table inet others { counter c { packets 7 bytes 700 }; set s { type ipv4_addr; flags timeout; elements = { 192.0.2.200 timeout 1h }; }; chain in { type filter hook input priority 0; policy accept; ip saddr @s counter drop; }; }'
nft 'table inet floodwall { chain mine { counter; }; }'
nft 'table ip floodwall-9 { chain mine { counter; }; }'
iptables -t raw -N FLOODWALLER
iptables -t raw -A PREROUTING -i fw9 -j FLOODWALLER
iptables -A INPUT -s 192.0.2.250 -m comment --comment floodwall -j DROP
ip6tables -t raw -N OTHERS
ip6tables -t raw -A PREROUTING -s 2001:db8:ff::/48 -j OTHERS
ip6tables -A FORWARD -s 2001:db8:f::/48 -j DROP
ipset create others hash:ip
ipset add others 192.0.2.3
ipset create floodwalls hash:net
iptables -I FORWARD -m set --match-set others src -j DROP
`

// TestOthers applies, blocks, rolls back and unloads while another program has rules. These rules must not change.
func TestOthers(t *testing.T) {
	e := newEnds(t)
	if e == nil {
		return
	}
	e.run("sh", "-ec", others)
	before := e.ruleset()
	for _, w := range ways {
		for i := range 3 {
			if _, err := e.try(w.policy("old", 1000+i), control.ApplyOptions{Target: w.target}); err != nil {
				t.Fatal(err)
			}
			e.block(someBans()...)
		}
		if _, err := e.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := e.try(w.policy("new", 2000), control.ApplyOptions{Target: w.target, Confirm: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if err := e.Unload(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, e.ruleset()); diff != "" {
			t.Fatalf("%s: other people's rules (-before +after):\n%s", w.name, diff)
		}
	}
}

// TestCountersAcross applies policies again on each target. Rules that stay must keep their counts, and other rules must start at zero.
func TestCountersAcross(t *testing.T) {
	e := newEnds(t)
	if e == nil {
		return
	}
	for _, w := range ways {
		for round, port := range []int{2000, 1000, 1000} {
			name := []string{"new", "old", "old"}[round]
			if _, err := e.try(w.policy(name, port), control.ApplyOptions{Target: w.target}); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				e.passes(9, port)
				e.passes(9, port+1)
			}
			want := map[string]uint64{"banned": 0, name: 3, name + "-too": 3}
			if round == 2 {
				want = map[string]uint64{"banned": 0, name: 6, name + "-too": 6}
			}
			e.wantCounts(fmt.Sprintf("on %s in round %d", w.name, round), want)
		}
		if _, err := e.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.passes(9, 1000)
		if w.name == "xdp" { // netfilter starts at zero
			e.wantCounts("after a rollback on "+w.name, map[string]uint64{"banned": 0, "old": 7, "old-too": 6})
		}
		e.clear()
	}
}
