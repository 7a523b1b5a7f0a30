// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// netMutated are policies of whose tables mutants are made. Together they use all parts of a table.
var netMutated = []string{
	"default: drop\nchecks: standard\nrules: [{name: web, port: [tcp/80, tcp/443], then: pass}, {name: dns, port: udp/53, then: reject}]\n",
	"default: pass\nchecks: off\nsets: {bad: [192.0.2.0/24, 198.51.100.7, '2001:db8::/32'], live: {dynamic: true, max: 100}}\n" +
		"rules: [{name: bad, from: $bad, then: drop}, {name: live, from: $live, then: drop}, {name: large, length: 1400-9000, ttl: 0-9, then: drop}]\n",
	"default: drop\nchecks: strict\nrules: [{name: tiny, mss: 0-535, then: drop}, {name: ping, icmp: echo-request, then: pass}, " +
		"{name: marked, dscp: [3, 8], then: pass}]\n",
	"default: pass\nchecks: off\nrules: [{name: fast, proto: udp, over: {rate: 1000/s, per: from/24, burst: 100}, then: drop}, " +
		"{name: tagged, vlan: 5, then: drop}, {name: all, proto: tcp, over: {rate: 9000/s, burst: 100}, then: reject}, {name: watched, port: tcp/25, then: drop, observe: true}]\n",
	"default: drop\nchecks: off\nrules:\n" + manyPorts(),
	`default: pass
checks: off
sets: {office: [192.0.2.0/24, '2001:db8::/32']}
rules:
  - {name: has, proto: [udp, tcp], payload: {at: {offset: 4, bytes: "|00 00 00 01|"}}, then: drop}
  - {name: has-not, port: tcp/99, not: {payload: {at: {offset: 4, bytes: "|00 00 00 01|"}}}, then: drop}
  - {name: tunnels, proto: [4, 41, 47], from: $office, then: drop}
  - {name: crowd, port: tcp/22, over: {connections: 9, per: from/24/56}, then: drop}
  - {name: new, port: 8080, state: [new, invalid], to: [local], then: drop}
`,
}

// manyPorts returns so many rules that the compiler uses verdict maps.
func manyPorts() string {
	var b strings.Builder
	for i := range 24 {
		fmt.Fprintf(&b, "  - {name: r%d, port: [tcp/%d, udp/%d-%d], from: 192.0.%d.0/24, then: %s}\n", i, 1000+7*i, 2000+10*i, 2004+10*i, i, []string{"pass", "drop"}[i%2])
	}
	return b.String()
}

// TestNetfilterMutants checks that the solver finds mistakes. For each mutant of the tables it must find a packet that shows the difference, or prove
// that the mutant decides every packet as before. FLOODWALL_MUTANTS is the number of mutants of each policy; without it, 4 of every second policy.
func TestNetfilterMutants(t *testing.T) {
	requireSolver(t)
	testutil.RequireTool(t, "nft")
	testutil.RequireRoot(t)
	n, whole := 4, os.Getenv("FLOODWALL_MUTANTS")
	if whole != "" {
		n, _ = strconv.Atoi(whole)
	}
	for i, text := range netMutated {
		if whole == "" && i%2 == 0 { // the proof of this policy takes longer than that of the others
			continue
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			s, err := netfilterOf(t, "policy.yaml", "devices: [eth0]\n"+text)
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			counts, gaveUp, err := s.Mutants(context.Background(), smt.Limits{Time: 20 * time.Second}, n, rand.New(rand.NewPCG(1, uint64(i))))
			if err != nil {
				t.Fatal(err)
			}
			saysNo(t, counts, gaveUp)
			t.Logf("in %v", time.Since(start))
		})
	}
}

// TestNetfilterCounterexample checks that a mistake in a table is shown as a packet. The table has port 444 instead of 443, so the packet must go to
// one of these two ports.
func TestNetfilterCounterexample(t *testing.T) {
	requireSolver(t)
	testutil.RequireTool(t, "nft")
	testutil.RequireRoot(t)
	s, err := netfilterOf(t, "policy.yaml", "devices: [eth0]\n"+netMutated[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range s.world.tables[0].Sets {
		for i, e := range set.Elements {
			if string(e.Key[:2]) == "\x01\xbb" {
				set.Elements[i].Key = []byte{1, 0xbc}
			}
		}
	}
	r := s.Kind(context.Background(), kind{proto: protoTCP}, smt.Limits{Time: limit})
	if r.Answer != smt.Satisfiable {
		t.Fatalf("%s: %s", r.Answer, r.Why)
	}
	pkt := packet.Decode(r.Frame)
	if port := pkt.Value[packet.DPort]; port != 443 && port != 444 {
		t.Errorf("the frame %x is for port %d, want 443 or 444", r.Frame, port)
	}
	if text, ok := Notation(r.Frame); !ok || !strings.HasPrefix(text, "tcp ") {
		t.Errorf("the frame %x is described as %q, exactly: %t", r.Frame, text, ok)
	}
}

// TestNetfilterAssumptions checks that the assumptions allow some packet of each kind. Assumptions that contradict each other would prove anything.
func TestNetfilterAssumptions(t *testing.T) {
	requireSolver(t)
	testutil.RequireTool(t, "nft")
	testutil.RequireRoot(t)
	s, err := netfilterOf(t, "policy.yaml", "devices: [eth0, a-long-name]\n"+netMutated[2])
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range netKinds() {
		q, err := s.query(k, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, forwarded := range []bool{false, true} {
			c, m := q.c, q.meaning
			some := c.And(c.Not(m.outside), s.world.assumptions(m), c.Eq(s.world.forwarded(c), c.Bool(forwarded)))
			if answer, _, err := c.Solve(context.Background(), smt.Limits{Time: limit}, some); answer != smt.Satisfiable {
				t.Errorf("%s, forwarded %t: %v %v", k, forwarded, answer, err)
			}
		}
	}
}
