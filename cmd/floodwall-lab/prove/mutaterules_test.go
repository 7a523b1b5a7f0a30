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

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/compile/xdp"
)

// mutatedRules are policies with rules of which mutants are made. Together they use all parts of decide(), in both forms of its code.
var mutatedRules = []struct {
	form xdp.Form
	text string
}{
	{xdp.Straight, "default: drop\nreplies: drop\nsets: {bad: [192.0.2.0/24, '2001:db8::/32'], live: {dynamic: true, max: 100}}\nrules:\n" +
		"  - {name: bad, from: $bad, then: drop}\n  - {name: live, from: $live, not: {to: 203.0.113.0/24}, then: drop}\n" +
		"  - {name: text, port: tcp/80, payload: {contains: ['GET /evil', 'x-bad']}, then: drop}\n" +
		"  - {name: web, port: [tcp/80, tcp/443, tcp/8000-8100], then: pass}\n"},
	{xdp.Tables, "default: drop\nreplies: drop\nsets: {bad: [192.0.2.0/24, '2001:db8::/32'], live: {dynamic: true, max: 100}}\nrules:\n" +
		"  - {name: bad, from: $bad, then: drop}\n  - {name: live, from: $live, not: {to: 203.0.113.0/24}, then: drop}\n" +
		"  - {name: text, port: tcp/80, payload: {contains: ['GET /evil', 'x-bad']}, then: drop}\n" +
		"  - {name: web, port: [tcp/80, tcp/443, tcp/8000-8100], then: pass}\n"},
	{xdp.Straight, "default: pass\nreplies: drop\nrules:\n" +
		"  - {name: seen, port: udp/53, observe: true, then: drop}\n" +
		"  - {name: fast, proto: udp, over: {rate: 1000/s, per: from/24, burst: 100}, then: drop}\n" +
		"  - {name: short, proto: tcp, length: 40-60, ttl: 0-4, then: drop}\n"},
	{xdp.Tables, manyRules()},
}

// manyRules returns more rules than a word has bits. The code then uses a summary to find words that are not 0.
func manyRules() string {
	var b strings.Builder
	b.WriteString("default: drop\nreplies: drop\nrules:\n")
	for i := range 150 {
		fmt.Fprintf(&b, "  - {name: r%d, from: 10.%d.0.0/16, port: tcp/%d, then: %s}\n", i, i, 1000+i%40, []string{"pass", "drop"}[i%2])
	}
	b.WriteString("  - {name: fast, proto: udp, over: {rate: 1000/s, per: from/24, burst: 100}, then: drop}\n  - {name: rest, proto: udp, port: udp/53, then: pass}\n")
	return b.String()
}

func rulesSubject(t *testing.T, form xdp.Form, text string) *Subject {
	t.Helper()
	p, err := programOf("policy.yaml", "devices: [eth0]\nchecks: off\n"+text)
	if err != nil {
		t.Fatal(err)
	}
	x, err := xdp.Generate(p, xdp.Options{Form: form})
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSubject(p, x)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestMutantsOfRules checks that the solver finds mutants of decide() and of the tables of rules. FLOODWALL_MUTANTS is the number of mutants of each
// policy.
func TestMutantsOfRules(t *testing.T) {
	requireSolver(t)
	n, list := 3, mutatedRules[:3] // the last policy takes seconds before its first mutant
	if text := os.Getenv("FLOODWALL_MUTANTS"); text != "" {
		n, _ = strconv.Atoi(text)
		list = mutatedRules
	}
	for i, of := range list {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			s := rulesSubject(t, of.form, of.text)
			counts, harmless, gaveUp, err := s.MutantsOfRules(context.Background(), smt.Limits{Time: limit}, n, rand.New(rand.NewPCG(1, uint64(i))))
			if err != nil {
				t.Fatal(err)
			}
			saysNo(t, counts, gaveUp)
			t.Logf("harmless: %s", strings.Join(harmless, "\n"))
		})
	}
}

// TestCounterexampleOfRules checks that a mistake in decide() is shown by the fields of a packet. The code has port 444 instead of 443.
func TestCounterexampleOfRules(t *testing.T) {
	requireSolver(t)
	s := rulesSubject(t, xdp.Straight, mutatedRules[0].text)
	s.rules = slices.Clone(s.rules)
	for i := range s.rules {
		if s.rules[i].Constant == 443 {
			s.rules[i].Constant++
		}
	}
	r := s.Rules(context.Background(), false, smt.Limits{Time: limit})
	if r.Answer != smt.Satisfiable || !slices.Contains(r.State, "port=443") && !slices.Contains(r.State, "port=444") {
		t.Fatalf("%s: %s: %q, want a packet to port 443 or 444", r.Answer, r.Why, r.State)
	}
}
