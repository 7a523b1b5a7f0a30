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
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// netfilterOf compiles a policy to a table of nftables. refused is the reason if the compiler refuses it.
func netfilterOf(t *testing.T, file, text string) (n *Netfilter, refused error) {
	t.Helper()
	pl, compiled, err := planOf(file, text, plan.TargetNftables)
	if err != nil {
		return nil, err
	}
	if n, err = CompileNetfilter(context.Background(), pl, compiled.Devices()); err != nil {
		t.Errorf("%s: %v", file, err)
	}
	return n, err
}

// netProved proves a table, and fails the test if a packet shows a difference to the policy. It reports whether the whole table was proved.
func netProved(t *testing.T, name string, n *Netfilter) bool {
	t.Helper()
	r, err := n.Prove(context.Background(), smt.Limits{Time: limit}, nil)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	judged(t, name, r)
	return r.Proved()
}

// shortNet are policies of testdata/good that together use most parts of a table, and are proved in seconds.
var shortNet = []string{"checks.yaml", "connections.yaml"}

// netProxied is a policy with SYNPROXY.
const netProxied = "default: pass\nreplies: drop\nchecks: off\nservices: [{name: web, port: tcp/80, syn: {mode: router}}]\n"

// TestNetfilterParts proves the tables of which mutants are made, and one with SYNPROXY. Without FLOODWALL_PROVE it proves only the table with
// SYNPROXY.
func TestNetfilterParts(t *testing.T) {
	requireSolver(t)
	testutil.RequireTool(t, "nft")
	testutil.RequireRoot(t)
	list := []string{netProxied}
	if os.Getenv("FLOODWALL_PROVE") != "" {
		list = append(list, netMutated...)
	}
	for i, text := range list {
		n, err := netfilterOf(t, "policy.yaml", "devices: [eth0]\n"+text)
		if err != nil {
			t.Fatal(err)
		}
		if !netProved(t, fmt.Sprintf("part %d", i), n) {
			t.Errorf("%s is not proved", text)
		}
	}
}

// TestNetfilterPolicies proves the tables of the good policies of the policy's tests. Without FLOODWALL_PROVE it proves only a few.
func TestNetfilterPolicies(t *testing.T) {
	requireSolver(t)
	testutil.RequireTool(t, "nft")
	testutil.RequireRoot(t)
	provedTables(t, goodPolicies(t, shortNet))
}

// TestNetfilterDocuments proves the tables of the complete policies in the documents and guides. Without FLOODWALL_PROVE it proves those of two
// documents.
func TestNetfilterDocuments(t *testing.T) {
	requireSolver(t)
	testutil.RequireTool(t, "nft")
	testutil.RequireRoot(t)
	provedTables(t, documents(t))
}

// provedTables proves the tables of policies. It fails the test if the compiler accepts a table that is not proved.
func provedTables(t *testing.T, list []document) {
	t.Helper()
	var proved, refused, open int
	for _, d := range list {
		n, err := netfilterOf(t, d.file, d.text)
		switch {
		case err != nil:
			t.Logf("%s is refused: %s", d.name(), strings.SplitN(err.Error(), "\n", 2)[0])
			refused++
		case netProved(t, d.name(), n):
			proved++
		default:
			t.Errorf("%s%s is not proved", d.file, d.number)
			open++
		}
	}
	t.Logf("%d proved, %d refused by the compiler, %d not proved", proved, refused, open)
}

// TestNetfilterRandom proves the tables of random policies with states, limits and rejections. FLOODWALL_PROVE is their number; without it, two.
func TestNetfilterRandom(t *testing.T) {
	requireSolver(t)
	testutil.RequireTool(t, "nft")
	testutil.RequireRoot(t)
	n := 2
	if text := os.Getenv("FLOODWALL_PROVE"); text != "" {
		n, _ = strconv.Atoi(text)
	}
	var proved, refused, open int
	for i := range n {
		r := rand.New(rand.NewPCG(2, uint64(i)))
		rules := 1 + r.IntN(10)
		if i%6 == 5 {
			rules = 50 + r.IntN(51)
		}
		s := stateful(t, r, rules)
		pl, err := plan.Hoist(s.Program, plan.TargetNftables)
		if err != nil {
			refused++
			continue
		}
		n, err := CompileNetfilter(context.Background(), pl, []string{"eth0"})
		if err != nil {
			t.Fatalf("policy %d: %v\n%s", i, err, s.Program)
		}
		if netProved(t, fmt.Sprintf("random %d", i), n) {
			proved++
		} else {
			t.Logf("%s", s.Program)
			open++
		}
	}
	t.Logf("%d proved, %d refused by the compiler, %d not proved", proved, refused, open)
}

// stateful returns a random policy. Some of its own rules test a state or a limit, reject or only observe. Built-in rules stay unchanged, because the
// second rule of a pair must have the tests of the first.
func stateful(t *testing.T, r *rand.Rand, rules int) *subject.Subject {
	t.Helper()
	text, _, _ := subject.RandomPolicy(t, r, rules)
	s := subject.Lower(t, text)
	for i := range s.Program.Rules {
		rule := &s.Program.Rules[i]
		if rule.Kind != ir.RuleKindRule {
			continue
		}
		switch r.IntN(8) {
		case 0:
			first := uint32(r.IntN(int(packet.State.Size())))
			last := first + uint32(r.IntN(int(packet.State.Size()-first)))
			rule.Match = append(rule.Match, ir.Match{Field: packet.State, Values: []ir.Range{{First: first, Last: last}}})
		case 1:
			if rule.Verdict == ir.Drop {
				rule.Verdict = ir.Reject
			}
		case 2:
			rule.Over = append(rule.Over, len(s.Program.Limits))
			s.Program.Limits = append(s.Program.Limits, ir.Limit{
				Rule: rule.Name, Rate: 10, Per: time.Second, Burst: 10, Src: &ir.Prefixes{V4: 24 + r.IntN(9), V6: 56 + r.IntN(9)}, Max: 1000,
			})
		case 3:
			rule.Observe = true
		}
	}
	return s
}
