// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// mutated are policies of which mutants are made. Together they use all parts of the entry.
var mutated = []string{
	"default: drop\nreplies: drop\nchecks: standard\nrules: [{name: web, port: [tcp/80, tcp/443], then: pass}, {name: dns, port: udp/53, then: pass}]\n",
	"default: drop\nreplies: drop\nchecks: off\nsets: {bad: [192.0.2.0/24, 198.51.100.7, '2001:db8::/32'], live: {dynamic: true, max: 100}}\n" +
		"rules: [{name: bad, from: $bad, then: drop}, {name: live, from: $live, then: drop}, {name: web, port: [tcp/80, tcp/443], then: pass}]\n",
	"default: drop\nchecks: strict\nrules: [{name: tiny, mss: 0-535, then: drop}, {name: ping, icmp: echo-request, then: pass}]\n",
	"default: pass\nreplies: drop\nchecks: off\nrules: [{name: fast, proto: udp, over: {rate: 1000/s, per: from/24, burst: 100}, then: drop}]\n",
	"default: drop\nreplies: drop\nchecks: off\nservices: [{name: web, port: tcp/80, syn: {when: always, mode: host}}]\n",
}

// saysNo fails the test unless some mutants were caught, and z3 gave up for none.
func saysNo(t *testing.T, counts map[string]*MutantCounts, gaveUp []string) {
	t.Helper()
	caught := 0
	for class, c := range counts {
		caught += c.Caught
		t.Logf("%s %+v", class, *c)
	}
	if len(gaveUp) > 0 || caught == 0 {
		t.Errorf("%d caught, given up %q", caught, gaveUp)
	}
}

// TestMutants checks that the solver finds mistakes. For each mutant of the code and the tables it must find a frame that shows the difference, or
// prove that the mutant decides every frame as before. FLOODWALL_MUTANTS is the number of mutants of each policy.
func TestMutants(t *testing.T) {
	requireSolver(t)
	n := 2
	if text := os.Getenv("FLOODWALL_MUTANTS"); text != "" {
		n, _ = strconv.Atoi(text)
	}
	for i, text := range mutated {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			s, err := subjectOf("policy.yaml", "devices: [eth0]\n"+text, false)
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

// TestCounterexample checks that a mistake in the code is shown as a packet. The code has port 444 instead of 443, so the packet must go to one of
// these two ports.
func TestCounterexample(t *testing.T) {
	requireSolver(t)
	s, err := subjectOf("policy.yaml", "devices: [eth0]\n"+mutated[0], false)
	if err != nil {
		t.Fatal(err)
	}
	s.entry = slices.Clone(s.entry)
	for i := range s.entry {
		if s.entry[i].Constant == 443 {
			s.entry[i].Constant++
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
	text, ok := Notation(r.Frame)
	if !ok || !strings.HasPrefix(text, "tcp ") {
		t.Errorf("the frame %x is described as %q, exactly: %t", r.Frame, text, ok)
	}
}
