// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// allTargets are the targets to which a policy can be applied.
var allTargets = []plan.Target{plan.TargetXDP, plan.TargetNftables, plan.TargetIptables}

// samePolicy uses all features that the three targets support without conntrack. %s is a list file.
const samePolicy = `
default: drop
checks: {profile: off, ttl-zero: on, source-address: on, port-zero: on, udp-source-zero: on, icmp-type: on, tcp-flags: on, syn-low-port: on}
sets:
  office: [203.0.113.0/25, 2001:db8:1::/48, 198.51.100.7, 198.51.100.20-198.51.100.29]
  listed: {file: %s}
  bans: {dynamic: true, max: 1000, timeout: 1h}
rules:
  - {name: office, from: $office, proto: tcp, port: [22, 80], then: pass}
  - {name: listed, from: [$listed, $bans], then: drop}
  - {name: marked, dscp: 46, length: 40-200, then: pass}
  - {name: far, ttl: 0-10, proto: udp, then: drop}
  - {name: pings, icmp: echo-request, not: {from: 203.0.113.0/24}, then: pass}
  - {name: refused, proto: udp, port: 1000-1999, from: $office, then: reject}
  - {name: closed, proto: tcp, port: 1000-1999, from: $office, then: reject}
  - {name: resets, flags: rst/rst, then: drop}
  - {name: second, to: [192.0.2.128/26, "2001:db8:2:0:8000::/65"], sport: 1024-65535, port: [7, 9], then: pass}
services:
  - {name: dns, port: [udp/53, tcp/53]}
  - {name: ssh, port: tcp/22, from: $office}
  - {name: web, port: [tcp/80, udp/443], from: [203.0.113.0/24, "2001:db8:3::/48"]}
`

// sameBans are the entries of the dynamic set.
var sameBans = []string{"198.51.100.64/28", "203.0.113.200/32", "2001:db8:bad::/64", "2001:db8:3::7/128"}

// sameHints returns hints so that random packets match the rules. Both local networks are the host's own.
func sameHints() (h packet.Hints) {
	for _, p := range []string{
		"192.0.2.0/25", "192.0.2.128/25", "2001:db8:2::/64", "203.0.113.0/24", "198.51.100.0/25", "2001:db8:1::/48",
		"2001:db8:3::/112", "2001:db8:bad::/60",
	} {
		h.Addrs = append(h.Addrs, netip.MustParsePrefix(p))
	}
	port := func(p uint32) []uint32 { return []uint32{p} }
	h.Values[packet.DPort] = slices.Concat(port(22), port(53), port(80), port(443), port(7), port(9), port(1000), port(1999))
	h.Values[packet.SPort] = slices.Concat(port(1023), port(1024), port(0))
	return h
}

// local reports whether an address is in one of the host's local networks.
func local(a netip.Addr) bool {
	return netip.MustParsePrefix("192.0.2.0/24").Contains(a) || netip.MustParsePrefix("2001:db8:2::/64").Contains(a)
}

// alike reports whether a packet reaches the last stage of each target unchanged. It returns false for packets that IP itself drops or reassembles,
// and for packets with headers that only XDP or only netfilter parses.
func alike(frame []byte) bool {
	p := packet.Decode(frame)
	kernels := packet.CheckSet(0).With(packet.Truncated).With(packet.IPHeader).With(packet.Land).With(packet.SourceAddress)
	switch {
	case p.Kind != packet.IP || p.Value[packet.VLAN] != packet.VLANNone || p.Value[packet.Fragment] != packet.FragmentNone:
		return false
	case p.Failed&kernels != 0 || !local(p.Dst) || local(p.Src) || !p.Src.IsGlobalUnicast():
		return false
	case p.Src.Is4():
		return frame[14] == 0x45 && p.Src.As4()[0] < 224 && p.Src.As4()[0] > 0
	}
	next := frame[20]
	return next == 6 || next == 17 || next == 58
}

// TestSameOnAllTargets applies one policy to each target in turn and sends it the same packets: each must get the
// verdict that Eval gives, and each rule, check and default must have counted the same packets and bytes.
func TestSameOnAllTargets(t *testing.T) {
	for _, tool := range []string{"nft", "iptables-restore", "ipset"} {
		testutil.RequireTool(t, tool)
	}
	h := newBareHost(t)
	if h == nil {
		return
	}
	judge := h.newJudge()
	list := filepath.Join(t.TempDir(), "list.txt")
	if err := os.WriteFile(list, []byte("198.51.100.40\n198.51.100.96/27\n2001:db8:3::8000/113 # half\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	policy := fmt.Sprintf(samePolicy, list)
	frames := sameFrames(t, testutil.Scaled(15_000, 100_000), sameHints())
	c, err := control.CompileSource("policy.yaml", []byte("devices: [fw0]\n"+policy))
	if err != nil {
		t.Fatal(err)
	}
	passes, want := definition(c, frames)
	for _, target := range allTargets {
		if _, err := h.try(policy, control.ApplyOptions{Target: target}); err != nil {
			t.Fatal(err)
		}
		for _, b := range sameBans {
			h.block(ban.Ban{Prefix: netip.MustParsePrefix(b)})
		}
		h.meet(string(target), judge, frames, passes)
		if diff := cmp.Diff(want, h.tallies()); diff != "" {
			t.Errorf("%s counts otherwise than Eval (-want +got):\n%s", target, diff)
		}
		if err := h.Unload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// meet sends packets, and compares the verdict on each with Eval's.
func (h *host) meet(what string, judge *testutil.Judge, frames [][]byte, passes []bool) {
	h.Helper()
	differ := 0
	for at := 0; at < len(frames); at += 5000 {
		fates, err := judge.Fates(frames[at:min(at+5000, len(frames))])
		if err != nil {
			h.Fatal(err)
		}
		for i, f := range fates {
			passed := slices.Contains(f.Seen, "input") && f.Dropped == ""
			if passed != passes[at+i] && differ < 5 {
				differ++
				h.Errorf("%s: packet %x seen at %v, dropped at %q, but Eval passes it: %t", what, frames[at+i], f.Seen, f.Dropped, passes[at+i])
			}
		}
	}
}

// newJudge prepares networks with only own addresses of the host. No packets are sent from them except the test's.
func (h *host) newJudge() *testutil.Judge {
	h.Helper()
	judge := testutil.NewJudge(h.T, "fw0", "fw1", false, "192.0.2.1/24", "2001:db8:2::1/64")
	h.ip("route add local 192.0.2.0/24 dev lo", "-6 route add local 2001:db8:2::/64 dev lo")
	h.run("sysctl", "-qw", "net.ipv6.conf.fw1.disable_ipv6=1", "net.ipv6.conf.fw0.accept_ra=0")
	h.run("nft", "table inet silent { chain answers { type filter hook output priority 0; policy drop; }; }")
	return judge
}

// sameFrames draws packets, the same ones for the same seed.
func sameFrames(t *testing.T, n int, hints packet.Hints) (frames [][]byte) {
	t.Helper()
	r := testutil.Random(t)
	for len(frames) < n {
		if frame := packet.RandomSpec(r, hints).Frame(); alike(frame) {
			frames = append(frames, frame)
		}
	}
	return frames
}

// tallied has the counts of one reason.
type tallied struct{ Packets, Bytes uint64 }

// definition returns Eval's results for the packets: which of them pass, and the counts of each reason.
func definition(c *control.Compiled, frames [][]byte) (passes []bool, counts map[string]tallied) {
	banned := func(_ int, a netip.Addr) bool {
		return slices.ContainsFunc(sameBans, func(b string) bool { return netip.MustParsePrefix(b).Contains(a) })
	}
	counts = map[string]tallied{}
	for _, frame := range frames {
		p := packet.Decode(frame)
		verdict, reason := c.Program.Eval(&p, ir.World{Member: banned})
		n := counts[c.Program.ReasonName(reason)]
		counts[c.Program.ReasonName(reason)] = tallied{n.Packets + 1, n.Bytes + uint64(len(frame))}
		passes = append(passes, verdict == ir.Pass)
	}
	return passes, counts
}

// tallies returns the counts of the rules, the checks and the default that are not zero.
func (h *host) tallies() map[string]tallied {
	h.Helper()
	s, err := h.Status(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	counts := map[string]tallied{}
	for _, r := range append(append(s.Rules, s.Checks...), s.Default) {
		if r.Packets > 0 {
			counts[r.Name] = tallied{r.Packets, r.Bytes}
		}
	}
	return counts
}
