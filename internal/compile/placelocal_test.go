// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// way is a packet, and the filter hook that the packet reaches.
type way struct{ hook, packet string }

// ways are packets with the filter hooks that they reach. Some packets reach the input hook although their destination is not an address of the host.
// These are packets to broadcast addresses, multicast groups, and the anycast address of an IPv6 router.
var ways = []way{
	{"input", "udp 198.51.100.1:5 > 192.0.2.1:5001"},
	{"input", "udp 198.51.100.1:5 > 192.0.2.255:5001"},
	{"input", "udp 198.51.100.1:5 > 255.255.255.255:5001"},
	{"input", "udp 198.51.100.1:5 > 224.0.0.1:5001"},
	{"input", "udp [2001:db8:1::9]:5 > [2001:db8::1]:5001"},
	{"input", "udp [2001:db8:1::9]:5 > [2001:db8::]:5001"},
	{"input", "udp [2001:db8:1::9]:5 > [ff02::1]:5001"},
	{"forward", "udp 198.51.100.1:5 > 203.0.113.5:5001"},
	{"forward", "udp 198.51.100.1:5 > 203.0.113.6:5001"},
	{"forward", "udp [2001:db8:1::9]:5 > [2001:db9::5]:5001"},
}

// atFilter compares netfilter's verdicts on packets with those of Eval, for each of the rules, which are placed at filter.
func atFilter(t *testing.T, ways []way, rules []string) {
	for _, target := range []plan.Target{plan.TargetNftables, plan.TargetIptables} {
		t.Run(string(target), func(t *testing.T) {
			if !testutil.Inside(t) {
				return
			}
			d := &differential{target: target, judge: testutil.NewJudge(t, "eth0", "eth1", false, "192.0.2.1/24", "2001:db8::1/64")}
			for _, r := range rules {
				d.local(t, "checks: off\nplacement: filter\nrules: ["+r+"]", ways)
			}
		})
	}
}

// TestLocalAtFilter places rules about the host's own addresses at filter. There, packets for the host and forwarded packets reach different hooks.
// Verdicts must be equal to those of Eval, and the chain for forwarded packets must not contain the rules.
func TestLocalAtFilter(t *testing.T) {
	atFilter(t, ways, []string{
		"{name: r, to: local, proto: udp, port: 5001, then: drop}",
		"{name: r, not: {to: local}, proto: udp, then: drop}",
		"{name: r, to: local, then: drop}",
		"{name: r, not: {to: local}, then: drop}",
		"{name: r, to: [local, 203.0.113.5, '2001:db9::/32'], then: drop}",
		"{name: r, not: {to: [local, 203.0.113.5]}, then: drop}",
		"{name: r, to: local, ttl: 64, then: pass}, {name: s, ttl: 64, then: drop}",
		"{name: r, not: {to: local}, then: pass}, {name: s, then: drop}",
		"{name: r, from: 198.51.100.0/24, not: {from: local}, then: drop}",
	})
}

// local compares the verdicts of a policy on packets with those of Eval.
func (d *differential) local(t *testing.T, text string, ways []way) {
	t.Helper()
	s := subject.Lower(t, text)
	if strings.Contains(text, "local") {
		s.Insert(t, "local", "192.0.2.1/32 2001:db8::1/128")
	}
	pl, err := plan.Hoist(s.Program, d.target)
	if err != nil {
		t.Fatal(err)
	}
	r := d.load(t, s, pl)
	defer r.remove(t)
	var frames [][]byte
	for _, w := range ways {
		frames = append(frames, subject.FramesOf(t, w.packet)[0].Frame)
	}
	fates, err := d.judge.Fates(frames)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range ways {
		verdict, _ := s.Eval(subject.Probe{Frame: frames[i]})
		want := ""
		if verdict == ir.Drop {
			want = w.hook
		}
		if fates[i].Dropped != want || !slices.Contains(fates[i].Seen, w.hook) {
			t.Errorf("%s: dropped at %q, want %q, of %v\n%s\n%s", w.packet, fates[i].Dropped, want, fates[i].Seen, text, r.show)
		}
	}
	if asked := inForward(d.target, r.show); strings.Contains(asked, "fib daddr") || strings.Contains(asked, "--dst-type") {
		t.Errorf("%s: what is forwarded is asked whether it is local:\n%s", text, asked)
	}
}

// inForward returns the lines of the chain for forwarded packets.
func inForward(target plan.Target, text string) (lines string) {
	if target == plan.TargetNftables {
		_, text, _ = strings.Cut(text, "chain forward {")
		chain, _, _ := strings.Cut(text, "}\n")
		return chain
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, "-A FLOODWALL-FORWARD ") {
			lines += line
		}
	}
	return lines
}

// fragmentWays are later fragments whose data looks like a header with port 53. For packets to this host, IPv4 reassembles fragments before the
// input hook, and IPv6 after it.
var fragmentWays = []way{
	{"forward", "udp 198.51.100.1:5 > 203.0.113.5:53 frag=later"},
	{"forward", "udp [2001:db8:1::9]:5 > [2001:db9::5]:53 frag=later"},
	{"input", "udp [2001:db8:1::9]:5 > [2001:db8::1]:53 frag=later"},
	{"forward", "udp 198.51.100.1:5 > 203.0.113.5:53"},
	{"forward", "udp [2001:db8:1::9]:5 > [2001:db9::5]:53 frag=first"},
	{"input", "udp 198.51.100.1:5 > 192.0.2.1:53"},
}

// TestFragmentsAtFilter sends later fragments to the filter hooks. They reach these hooks if no rule uses conntrack. Rules must treat them as packets
// without ports.
func TestFragmentsAtFilter(t *testing.T) {
	atFilter(t, fragmentWays, []string{
		"{name: r, proto: udp, port: 53, then: drop}",
		"{name: r, proto: udp, not: {port: 53}, then: drop}",
		"{name: r, not: {to: local}, proto: udp, port: 53, then: pass}, {name: s, proto: udp, then: drop}",
		"{name: r, ttl: 64, port: udp/53, then: drop}",
	})
}
