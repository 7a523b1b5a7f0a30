// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// askPolicy has rules that decide at each stage.
const askPolicy = `
default: drop
checks: {port-zero: on, source-address: on}
sets:
  office: [203.0.113.0/24, 2001:db8:1::/48]
  bans: {dynamic: true, max: 1000, timeout: 1h}
rules:
  - {name: office, from: $office, then: pass}
  - {name: banned, from: $bans, then: drop}
  - {name: own, to: local, proto: udp, port: 7, then: drop}
  - {name: reply, state: [established, related], then: pass}
  - {name: broken, state: invalid, then: drop}
  - {name: refuse, proto: tcp, port: 113, then: reject}
services:
  - {name: web, port: tcp/80, track: false}
  - {name: dns, port: [udp/53, tcp/53]}
`

// askCases are packets with the expected verdicts and reasons. The expected stages are those of Compiled.Explain.
var askCases = []struct{ packet, want string }{
	{"tcp 203.0.113.9:1234 > 192.0.2.1:113 S", "pass office"},
	{"tcp [2001:db8:1::9]:1234 > [2001:db8::1]:113 S", "pass office"},
	{"udp 198.51.100.7:1234 > 192.0.2.1:7", "drop own"},
	{"udp [2001:db8:9::7]:1234 > [2001:db8::1]:7", "drop own"},
	{"udp 198.51.100.7:1234 > 192.0.2.77:7", "drop default"},
	{"udp 198.51.100.7:1234 > 192.0.2.1:0", "drop port-zero"},
	{"tcp 127.0.0.1:1234 > 192.0.2.1:22 S", "drop source-address"},
	{"tcp 198.51.100.7:1234 > 192.0.2.1:113 S", "reject refuse"},
	{"tcp [2001:db8:9::7]:1234 > [2001:db8::1]:113 S", "reject refuse"},
	{"tcp 198.51.100.7:1234 > 203.0.113.200:113 S", "reject refuse"},
	{"tcp 198.51.100.7:1234 > 192.0.2.1:80 S", "pass web"},
	{"udp [2001:db8:9::7]:1234 > [2001:db8::1]:53", "pass dns"},
	{"tcp 198.51.100.7:1234 > 192.0.2.1:22 S", "drop default"},
	{"icmp 198.51.100.7 > 192.0.2.1 echo-request", "drop default"},
	{"icmp 198.51.100.7 > 192.0.2.1 echo-request state=established", "pass reply"},
	{"icmpv6 2001:db8:9::7 > 2001:db8::1 echo-reply state=established", "pass reply"},
	{"tcp 198.51.100.7:443 > 192.0.2.1:40000 A state=established", "pass reply"},
	{"tcp [2001:db8:9::7]:443 > [2001:db8::1]:40000 FA state=established", "pass reply"},
	{"udp 198.51.100.7:5000 > 192.0.2.1:40000 state=established", "pass reply"},
	{"udp 198.51.100.7:5000 > 192.0.2.1:40000 state=related", "pass reply"},
	{"tcp [2001:db8:9::7]:20 > [2001:db8::1]:40000 S state=related", "pass reply"},
	{"tcp 198.51.100.7:5000 > 192.0.2.1:40000 A state=invalid", "drop broken"},
	{"tcp 198.51.100.7:5000 > 192.0.2.1:22 A", "drop default"},
	{"udp 198.51.100.7:5000 > 192.0.2.1:40000 state=untracked", "drop default"},
	{"gre 198.51.100.7 > 192.0.2.1", "drop default"},
}

// askTargets are the targets. The target iptables is there once for each kind of iptables that this machine has.
var askTargets = []struct {
	name   string
	target plan.Target
	mode   datapath.Mode
	suffix string // of iptables
}{
	{"xdp", plan.TargetXDP, "", ""},
	{"xdp at tc", plan.TargetXDP, datapath.TC, ""},
	{"nftables", plan.TargetNftables, "", ""},
	{"iptables-nft", plan.TargetIptables, "", "-nft"},
	{"iptables-legacy", plan.TargetIptables, "", "-legacy"},
}

// onAll runs a test for each target, in its own namespaces, in which forwarding is on.
func onAll(t *testing.T, test func(*host, plan.Target)) {
	for _, a := range askTargets {
		t.Run(a.name, func(t *testing.T) {
			if !testutil.Inside(t) {
				return
			}
			if a.target == plan.TargetIptables {
				testutil.RequireTool(t, "ipset")
				useIptables(t, a.suffix) // before newHost, whose cleanup also needs it
			} else {
				testutil.RequireTool(t, "nft")
			}
			h := newHost(t)
			h.mode = a.mode
			h.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1",
				"net.ipv6.conf.fw1.disable_ipv6=1") // so that the kernel sends no packets that would be counted
			test(h, a.target)
		})
	}
}

// useIptables puts the tools of one kind of iptables first in the path.
func useIptables(t *testing.T, suffix string) {
	t.Helper()
	dir := t.TempDir()
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, name := range []string{"", "-save", "-restore"} {
			testutil.RequireTool(t, family+suffix+name)
			real, err := exec.LookPath(family + suffix + name)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(real, filepath.Join(dir, family+name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// explain asks the policy in force for its verdict on a packet, and the reason.
func (h *host) explain(line string) (control.Explanation, error) {
	h.Helper()
	spec, err := packet.Parse(line)
	if err != nil {
		h.Fatal(err)
	}
	return h.Explain(context.Background(), spec)
}

// applyTo applies a policy to a target, and returns the compiled policy.
func (h *host) applyTo(target plan.Target, policy string) *control.Compiled {
	h.Helper()
	c, err := control.CompileSource("policy.yaml", []byte("devices: [fw0]\n"+policy))
	if err != nil {
		h.Fatal(err)
	}
	if _, err := h.Apply(h.Context(), c.Policy, control.ApplyOptions{Target: target, Mode: h.mode}); err != nil {
		h.Fatal(err)
	}
	return c
}

// TestAsk asks the policy in force about packets of all kinds. The answers must equal those of Explain for the policy file, and no packet may be
// counted. In the short form, only every other packet is tested with each kind of iptables.
func TestAsk(t *testing.T) {
	onAll(t, func(h *host, target plan.Target) {
		c := h.applyTo(target, askPolicy)
		before := h.allCounts()
		legacy := strings.HasSuffix(h.Name(), "-legacy")
		for i, test := range askCases {
			if target == plan.TargetIptables && !testutil.Long() && (i%2 == 0) != legacy {
				continue
			}
			spec, err := packet.Parse(test.packet)
			if err != nil {
				h.Fatal(err)
			}
			want, err := c.Explain(spec, target)
			if err != nil {
				h.Fatal(err)
			}
			if means := want.Verdict + " " + want.Reason; means != test.want {
				h.Fatalf("%s means %s, and the test expects %s", test.packet, means, test.want)
			}
			got, err := h.explain(test.packet)
			if err != nil {
				h.Errorf("%s: %v", test.packet, err)
				continue
			}
			if inXDP := got.Path != ""; inXDP != (got.Stage == plan.StageXDP) {
				h.Errorf("%s: decided at %s, path %q", test.packet, got.Stage, got.Path)
			}
			if len(want.Passed) == 1 && want.Passed[0].Reply {
				want.Passed = nil // the policy in force knows whether the packet is a reply
			}
			got.Path = ""            // Explain of a policy file does not know the path
			got.Packet = want.Packet // TestAskState tests the states of conntrack
			if diff := cmp.Diff(want, got); diff != "" {
				h.Errorf("%s (-meaning +what runs):\n%s", test.packet, diff)
			}
		}
		if diff := cmp.Diff(before, h.allCounts()); diff != "" {
			h.Errorf("packets counted after questions (-before +after):\n%s", diff)
		}
	})
}

// allCounts returns the packet counts of all rules, including the built-in ones, and of all checks.
func (h *host) allCounts() map[string]uint64 {
	h.Helper()
	s, err := h.Status(context.Background())
	if err != nil {
		h.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, r := range slices.Concat(s.Rules, s.Checks) {
		counts[r.Name] += r.Packets
	}
	return counts
}
