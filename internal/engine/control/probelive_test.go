// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/testutil"
)

// wantAnswer asks the policy in force about a packet, and compares its answer.
func (h *host) wantAnswer(when, packet, want string) {
	h.Helper()
	got, err := h.explain(packet)
	if answer := got.Verdict + " " + got.Reason; err != nil || answer != want {
		h.Errorf("%s, %s: %s (error %v), want %s", when, packet, answer, err, want)
	}
}

// TestAskWhatRuns asks about facts that are not in a policy file: bans, and a policy on trial that has replaced the file's. Rules of other programs
// must have no effect.
func TestAskWhatRuns(t *testing.T) {
	const toWeb = "tcp 198.51.100.66:1234 > 192.0.2.1:80 S"
	onAll(t, func(h *host, target plan.Target) {
		h.applyTo(target, askPolicy)
		h.wantAnswer("before the ban", toWeb, "pass web")
		h.block(ban.Ban{Prefix: netip.MustParsePrefix("198.51.100.66/32"), Until: ban.After(time.Hour), Why: `so "it" is`},
			ban.Ban{Prefix: netip.MustParsePrefix("2001:db8:bad::/48")})
		h.wantAnswer("banned", toWeb, "drop banned")
		h.wantAnswer("banned", "udp [2001:db8:bad::7]:1234 > [2001:db8::1]:53", "drop banned")

		const other = "tcp 198.51.100.67:1234 > 192.0.2.1:80 S"
		h.run("nft", "add table inet other { chain c { type filter hook prerouting priority -460; tcp dport 80 drop; }; }")
		if target == plan.TargetIptables {
			h.run("iptables", "-t", "raw", "-I", "PREROUTING", "-j", "DROP")
		}
		h.wantAnswer("with rules of others", other, "pass web")

		p, err := policy.Parse("trial.yaml", []byte("devices: [fw0]\nrules: [{name: closed, port: 80, state: new, then: drop}]\n"))
		if err != nil {
			h.Fatal(err)
		}
		if _, err := h.Apply(h.Context(), p, control.ApplyOptions{Target: target, Confirm: time.Minute}); err != nil {
			h.Fatal(err)
		}
		h.wantAnswer("on trial", other, "drop closed")
		h.wantAnswer("on trial", "tcp 198.51.100.67:1234 > 192.0.2.1:81 S", "pass default")
		if _, err := h.Rollback(context.Background()); err != nil {
			h.Fatal(err)
		}
		h.wantAnswer("after the trial", other, "pass web")
	})
}

// conditionPolicy has all conditions, besides addresses and fields, that every target supports.
const conditionPolicy = `
default: drop
checks: {profile: off, port-zero: observe}
rules:
  - {name: seen, proto: udp, then: drop, observe: true}
  - {name: marks, proto: udp, payload: {at: {offset: 1, bytes: "vil"}}, then: reject}
  - {name: unmarked, port: udp/99, not: {payload: {at: {offset: 0, bytes: "ok"}}}, then: drop}
  - {name: much, proto: udp, over: {rate: 5/h, per: from/24}, then: drop}
  - {name: rest, port: 1-99, then: pass}
`

// TestAskConditions asks about payloads. Rules and checks that only observe must not be given as the reason, and no question may exceed a limit.
func TestAskConditions(t *testing.T) {
	onAll(t, func(h *host, target plan.Target) {
		h.applyTo(target, conditionPolicy)
		for range testutil.Scaled(2, 7) {
			h.wantAnswer("payload", `udp 198.51.100.7:1234 > 192.0.2.1:53 payload="evil"`, "reject marks")
			h.wantAnswer("no payload", "udp 198.51.100.7:1234 > 192.0.2.1:53", "pass rest")
		}
		h.wantAnswer("denied payload", "udp 198.51.100.7:1234 > 192.0.2.1:99", "drop unmarked")
		h.wantAnswer("denied payload that is there", `udp 198.51.100.7:1234 > 192.0.2.1:99 payload="ok"`, "pass rest")
		h.wantAnswer("observed check", "tcp 198.51.100.7:0 > 192.0.2.1:53 S", "pass rest")
		h.wantAnswer("observed rule that would drop", "udp 198.51.100.7:9 > 192.0.2.1:530", "drop default")
		s, err := h.Status(h.Context())
		for _, r := range slices.Concat(s.Rules, s.Checks) {
			if r.Packets != 0 {
				h.Errorf("%s has counted %d packets (error %v)", r.Name, r.Packets, err)
			}
		}
	})
}

// TestAskLeavesNothing asks two questions at a time: 50 in all in the long form, or 10 with iptables. Then it looks for resources that the questions
// have left.
func TestAskLeavesNothing(t *testing.T) {
	onAll(t, func(h *host, target plan.Target) {
		h.applyTo(target, askPolicy)
		h.wantAnswer("at first", "tcp 198.51.100.7:1234 > 192.0.2.1:113 S", "reject refuse") // after it Go has opened the files that it keeps open
		before, rounds := traces(h), testutil.Scaled(5, 25)
		if target == plan.TargetIptables {
			rounds = testutil.Scaled(2, 5)
		}
		var wait sync.WaitGroup
		for _, question := range [][2]string{
			{"tcp 198.51.100.7:1234 > 192.0.2.1:113 S", "reject refuse"},
			{"udp 198.51.100.7:1234 > 192.0.2.1:40000 state=established", "pass reply"},
		} {
			wait.Go(func() {
				for range rounds {
					h.wantAnswer("beside another question", question[0], question[1])
				}
			})
		}
		wait.Wait()
		var after []string
		testutil.Eventually(slow, func() bool { // threads take some time to end
			after = traces(h)
			return cmp.Equal(before, after)
		})
		if diff := cmp.Diff(before, after); diff != "" {
			h.Errorf("left behind by questions (-before +after):\n%s", diff)
		}
	})
}

// traces lists the network namespaces and sockets of the process, and the devices, routes, tables and sets that a copy of the host could leave.
func traces(h *host) (list []string) {
	h.Helper()
	links, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil {
		h.Fatal(err)
	}
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		h.Fatal(err)
	}
	for _, link := range append(links, files...) {
		if to, err := os.Readlink(link); err == nil && (strings.HasPrefix(to, "net:") || strings.HasPrefix(to, "socket:")) {
			list = append(list, to)
		}
	}
	slices.Sort(list)
	list = slices.Compact(list)
	for _, command := range []string{
		"ip -o link", "ip route show table all", "ip -6 route show table all", "nft list tables", "ipset list -n", "iptables -S", "ip6tables -S",
	} {
		words := strings.Fields(command)
		out, err := exec.Command(words[0], words[1:]...).Output()
		if err != nil {
			h.Fatalf("%s: %v", command, err)
		}
		for line := range strings.Lines(string(out)) {
			if !strings.Contains(line, "fe80:") { // the kernel adds the link-local address of fw0 at any time
				list = append(list, line)
			}
		}
	}
	return list
}

// TestAskProxied asks about packets to a protected service behind this host. Either SYNPROXY answers them, or a rule beside SYNPROXY drops them.
func TestAskProxied(t *testing.T) {
	onAll(t, func(h *host, target plan.Target) {
		h.applyTo(target, `services: [{name: web, port: tcp/80, syn: {mode: router, when: always}}]`)
		h.wantAnswer("a SYN", "tcp 198.51.100.7:999 > 192.0.2.9:80 S", "pass web:syn")
		if target != plan.TargetXDP { // in XDP, only the protection itself can tell
			h.wantAnswer("of no connection", "tcp 198.51.100.7:999 > 192.0.2.9:80 R", "drop web:invalid")
		}
	})
}

// onNftables runs a test on the target nftables.
func onNftables(t *testing.T, test func(*host)) {
	testutil.RequireTool(t, "nft")
	if h := newHost(t); h != nil {
		test(h)
	}
}

// TestAskState asks about packets in states that conntrack would not give them.
func TestAskState(t *testing.T) {
	onNftables(t, func(h *host) {
		h.applyTo(plan.TargetNftables, askPolicy)
		for _, test := range []struct{ packet, want string }{
			{"icmp 198.51.100.7 > 192.0.2.1 type=3 state=related",
				"conntrack calls this packet invalid, and can only be made to call it related by packets before it"},
			{"udp 198.51.100.7:5 > 192.0.2.1:6 state=invalid", "conntrack calls this packet new, and can only be made"},
		} {
			_, err := h.explain(test.packet)
			var hinter interface{ Hint() string }
			if err == nil || !strings.Contains(err.Error(), test.want) || !errors.As(err, &hinter) ||
				!strings.Contains(hinter.Hint(), "ask with state=") {
				h.Errorf("%s: error %v, want one with a hint, with %q", test.packet, err, test.want)
			}
		}
		for line, want := range map[string]string{
			"tcp 198.51.100.7:5 > 192.0.2.1:22 S":  "tcp 198.51.100.7:5 > 192.0.2.1:22 S",
			"tcp 198.51.100.7:5 > 192.0.2.1:22 SA": "tcp 198.51.100.7:5 > 192.0.2.1:22 SA state=invalid",
			"tcp 198.51.100.7:5 > 192.0.2.1:80 S":  "tcp 198.51.100.7:5 > 192.0.2.1:80 S state=untracked",
		} {
			if got, err := h.explain(line); err != nil || got.Packet != want {
				h.Errorf("%s: packet %q (error %v), want %q", line, got.Packet, err, want)
			}
			if _, err := packet.Parse(want); err != nil {
				h.Errorf("the answer cannot be asked again: %v", err)
			}
		}
	})
}

// TestAskKernel asks about packets that the kernel itself handles before the rules, or that match a rule of another program. The copy of the host
// must have the host's addresses, VLAN devices and forwarding.
func TestAskKernel(t *testing.T) {
	const own, elsewhere = "tcp 198.51.100.7:5 > 192.0.2.1:22 S", "tcp 198.51.100.7:5 > 203.0.113.200:22 S"
	onNftables(t, func(h *host) {
		h.ip("link add more0 type veth peer name more1")
		p, err := policy.Parse("policy.yaml", []byte("devices: [fw0, more0]\n"+askPolicy))
		if err != nil {
			h.Fatal(err)
		}
		if _, err := h.Apply(h.Context(), p, control.ApplyOptions{Target: plan.TargetNftables}); err != nil {
			h.Fatal(err)
		}
		h.wantAnswer("to an own address", own, "drop default")
		h.wantAnswer("without forwarding", elsewhere, "drop kernel")
		h.wantAnswer("passed before the kernel drops it", "tcp 203.0.113.9:5 > 203.0.113.200:22 S", "pass office")
		h.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
		h.wantAnswer("with forwarding", elsewhere, "drop default")
		h.run("sysctl", "-qw", "net.ipv4.ip_forward=0")
		h.ip("route add local 203.0.113.192/26 dev lo")
		h.wantAnswer("made an own address", elsewhere, "drop default")

		h.wantAnswer("without VLAN device", own+" vlan=5", "drop kernel")
		if out, err := exec.Command("ip", "link", "add", "link", "fw0", "name", "fw0.5", "type", "vlan", "id", "5").CombinedOutput(); err != nil {
			h.Logf("this kernel has no VLAN devices to ask with: %s", out)
		} else {
			h.ip("link add link fw0.5 name fw0.5.6 type vlan id 6", "link set fw0.5 up")
			h.wantAnswer("with VLAN device", own+" vlan=5", "drop default")
			h.wantAnswer("with VLAN device on VLAN device", own+" vlan=5,6", "drop default")
		}

		h.wantAnswer("not IP", "arp 198.51.100.7 > 192.0.2.1", "pass not-ip")
		if _, err := h.explain("udp 198.51.100.7:5 > 192.0.2.1:22 frag=first"); err == nil ||
			!strings.Contains(err.Error(), "the kernel keeps fragments until it has the whole packet, before stage filter") {
			h.Errorf("a fragment: %v", err)
		}

		out, err := exec.Command("sh", "-c", "nft list tables | sed -n 's/^table inet //p'").Output()
		if err != nil {
			h.Fatal(err)
		}
		h.run("nft", fmt.Sprintf("insert rule inet %s input tcp dport 22 drop", strings.TrimSpace(string(out))))
		h.wantAnswer("with a line of somebody else", own, "drop uncounted")
	})
}
