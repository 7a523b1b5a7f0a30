// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// stateTests are like keyTests, for keys that XDP alone cannot decide. The packets have states.
var stateTests = []struct{ name, policy, packets string }{
	{"state", `
rules:
  - {name: replies, state: [established, related], then: pass}
  - {name: broken, proto: tcp, state: invalid, then: drop}
  - {name: raw, state: untracked, port: 53, then: drop}
  - {name: begin, from: 10.0.0.0/8, state: new, then: drop}
`, `
tcp 10.0.0.1:5 > 1.1.1.1:80 . state=established  pass replies
udp [2001:db8::1]:5 > [2001:db8::2]:53 state=established  pass replies
icmp 10.0.0.1 > 1.1.1.1 type=3 state=related  pass replies
tcp 10.0.0.1:5 > 1.1.1.1:80 . state=invalid  drop broken
udp 10.0.0.1:5 > 1.1.1.1:80 state=invalid  pass default
udp 8.8.8.8:5 > 1.1.1.1:53 state=untracked  drop raw
udp 8.8.8.8:5 > 1.1.1.1:54 state=untracked  pass default
udp 8.8.8.8:5 > 1.1.1.1:53            pass default
udp 10.0.0.1:5 > 1.1.1.1:53           drop begin
udp 10.0.0.1:5 > 1.1.1.1:53 state=new  drop begin
arp                                   pass not-ip
`},
	{"not state", `
default: drop
rules:
  - {name: known, not: {state: [new, invalid]}, then: pass}
  - {name: odd, port: tcp/80, not: {state: new}, then: reject}
  - {name: rest, state: [new, invalid, untracked], not: {state: [invalid, established]}, port: 80-81, then: pass}
`, `
tcp 8.8.8.8:5 > 1.1.1.1:80 . state=established  pass known
udp 8.8.8.8:5 > 1.1.1.1:9 state=related  pass known
gre 8.8.8.8 > 1.1.1.1 state=untracked  pass known
tcp 8.8.8.8:5 > 1.1.1.1:80 . state=invalid  reject odd
tcp 8.8.8.8:5 > 1.1.1.1:81 . state=invalid  drop default
tcp 8.8.8.8:5 > 1.1.1.1:80 S          pass rest
udp 8.8.8.8:5 > 1.1.1.1:81            pass rest
udp 8.8.8.8:5 > 1.1.1.1:82            drop default
`},
	{"reject", `
checks: standard
rules:
  - {name: closed, from: [203.0.113.0/24, "2001:db8::/32"], port: [tcp/23, udp/69], then: reject}
  - {name: same, from: 203.0.113.7, port: tcp/23, then: drop}
  - {name: pings, icmp: echo-request, then: reject}
`, `
tcp 203.0.113.7:5 > 1.1.1.1:23        reject closed
udp [2001:db8::1]:5 > [2001:db8::2]:69  reject closed
tcp 203.0.114.7:5 > 1.1.1.1:23        pass default
tcp 203.0.113.7:5 > 1.1.1.1:23 ttl=0  drop ttl-zero
icmp 8.8.8.8 > 1.1.1.1                reject pings
icmpv6 2001:db8::1 > 2001:db8::2      reject pings
icmp 8.8.8.8 > 1.1.1.1 echo-reply     pass default
tcp 203.0.113.7:5 > 1.1.1.1:23 frag=later  pass default
`},
	{"tracked services", `
default: drop
rules:
  - {name: bad, from: 66.0.0.0/8, then: reject}
services:
  - {name: web, port: tcp/80}
  - {name: ssh, port: tcp/22, from: 203.0.113.0/24, track: true}
  - {name: dns, port: 53, track: true}
`, `
tcp 203.0.113.7:5 > 1.1.1.1:22 S      pass ssh
tcp 203.0.113.7:5 > 1.1.1.1:22 . state=established  pass tracked:replies
tcp 8.8.8.8:5 > 1.1.1.1:22 S          drop ssh:others
tcp 203.0.113.7:5 > 1.1.1.1:22 . state=invalid  drop tracked:invalid
udp 8.8.8.8:5 > 1.1.1.1:53 state=invalid  drop tracked:invalid
tcp 8.8.8.8:80 > 1.1.1.1:40000 . state=established  pass default:replies # of a connection of this host's own
icmp 8.8.8.8 > 1.1.1.1 type=3 state=related  pass default:replies
tcp 8.8.8.8:80 > 1.1.1.1:40000 .      drop default
tcp 8.8.8.8:5 > 1.1.1.1:80 . state=invalid  pass web # web is not tracked
tcp 8.8.8.8:5 > 1.1.1.1:81 . state=invalid  drop default
udp 8.8.8.8:5 > 1.1.1.1:53 state=untracked  pass dns
tcp 66.8.8.8:5 > 1.1.1.1:22 . state=established  reject bad
`},
	{"untracked services", `
default: drop
untracked: [loopback]
services:
  - {name: web, port: [tcp/80, tcp/443], track: false}
`, `
tcp 8.8.8.8:5 > 1.1.1.1:80 S          pass web
tcp 8.8.8.8:5 > 1.1.1.1:443 . state=untracked  pass web
tcp 8.8.8.8:5 > 1.1.1.1:80 . state=invalid  pass web
tcp 8.8.8.8:5 > 1.1.1.1:81 . state=established  pass default:replies
tcp 8.8.8.8:5 > 1.1.1.1:81 . state=related  pass default:replies
tcp 8.8.8.8:5 > 1.1.1.1:81 . state=invalid  drop default
`},
}

func TestStates(t *testing.T) {
	for _, test := range stateTests {
		t.Run(test.name, func(t *testing.T) {
			s := subject.Lower(t, test.policy)
			structural := structuralChecks(s)
			for _, f := range s.Cases(t, test.packets) {
				meansPolicy(t, s, structural, f)
			}
		})
	}
}

// TestUntracked checks which traffic Lower exempts from conntrack.
func TestUntracked(t *testing.T) {
	const udp = packet.PortUDP
	for _, test := range []struct {
		policy string
		want   ir.Untracked
	}{
		{"services: [{name: a, port: 80}, {name: b, port: 81, track: true}]", ir.Untracked{}},
		{"untracked: loopback", ir.Untracked{Loopback: true}},
		{"services: [{name: a, port: [udp/53, tcp/443, tcp/80-81], track: false}]", ir.Untracked{
			Services: []ir.UntrackedService{{Name: "a", Ports: []ir.Range{{First: 80, Last: 81}, {First: 443, Last: 443},
				{First: udp + 53, Last: udp + 53}}}}}},
		{"untracked: [loopback]\nservices: [{name: a, port: 7, track: no}, {name: b, port: 8}, " +
			"{name: c, port: tcp/9, from: 192.0.2.1, track: off}]", ir.Untracked{
			Services: []ir.UntrackedService{
				{Name: "a", Ports: []ir.Range{{First: 7, Last: 7}, {First: udp + 7, Last: udp + 7}}},
				{Name: "c", Ports: []ir.Range{{First: 9, Last: 9}}},
			}, Loopback: true}},
	} {
		s := subject.Lower(t, test.policy)
		for what, p := range map[string]*ir.Program{"lowered": s.Program, "optimized": s.Optimized().Program} {
			if diff := cmp.Diff(test.want, p.Untracked); diff != "" {
				t.Errorf("%s\n%s (-want +got):\n%s", test.policy, what, diff)
			}
		}
	}
}

// TestRandomStates does the same as TestRandom, for keys that XDP alone cannot decide. The policy, the program that Lower makes, and the optimized
// program must agree for packets of every state.
func TestRandomStates(t *testing.T) {
	_, seed := subject.Seeded(t)
	policies, packets := testutil.Scaled(12, 60), testutil.Scaled(1000, 1500)
	verdicts, counted, untracked := map[ir.Verdict]int{}, 0, 0
	for i := range policies {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		w := &subject.Writer{Rand: r, Stateful: true, Tracking: true}
		text, dynamic := w.Policy(t, 1+r.IntN(40))
		s := subject.Lower(t, text)
		for _, name := range dynamic {
			s.Insert(t, name, w.Members())
		}
		if s.Program.Untracked.Named() {
			untracked++
		}
		hints, optimized, structural := subject.RuleHints(s, w), s.Optimized(), structuralChecks(s)
		for range packets {
			f := subject.Probe{Frame: packet.Random(r, subject.Choose(w, hints...)), State: subject.Choose(w, packet.StateNew, uint32(r.IntN(int(packet.State.Size()))))}
			f.Name = "random " + hex.EncodeToString(f.Frame[:14])
			sameMeaning(t, s, optimized, f)
			meansPolicy(t, s, structural, f)
			verdict, reason := s.Eval(f)
			verdicts[verdict]++
			if reason.Kind == ir.ReasonRule && s.Program.Rules[reason.Index].Connections != nil {
				counted++
			}
		}
	}
	t.Logf("%d packets met a limit of connections", counted)
	if counted == 0 || untracked == 0 {
		t.Errorf("only %d packets met a limit of connections, and %d policies of %d leave something untracked", counted, untracked, policies)
	}
	for _, v := range []ir.Verdict{ir.Pass, ir.Drop, ir.Reject} {
		if verdicts[v] < policies*packets/100 {
			t.Errorf("only %d packets with the verdict %s", verdicts[v], v)
		}
	}
}
