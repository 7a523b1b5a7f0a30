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

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/subject"
)

// provedRules proves the rules in one form of their code, and fails the test if they are not proved. It reports whether code of that form exists.
func provedRules(t *testing.T, name string, p *ir.Program, form xdp.Form) bool {
	t.Helper()
	x, err := xdp.Generate(p, xdp.Options{Form: form})
	if err != nil {
		t.Logf("%s: no %s: %s", name, form, strings.SplitN(err.Error(), "\n", 2)[0])
		return false
	}
	s, err := NewSubject(p, x)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for _, v6 := range []bool{false, true} {
		r := s.Rules(context.Background(), v6, smt.Limits{Time: limit})
		if r.Answer != smt.Unsatisfiable {
			t.Errorf("%s, %s, %s: %s: %s\n%s", name, form, r.Kind, r.Answer, r.Why, strings.Join(r.State, " "))
		}
		t.Logf("%s, %s, %s: %s, %d rules, %d terms, %v of a CPU for z3, %v altogether", name, form, r.Kind, r.Answer, len(p.Rules), r.Terms, r.CPU, r.Time)
	}
	return true
}

var forms = []xdp.Form{xdp.Straight, xdp.Tables}

// TestRules proves the decisions of decide() for the good policies, in both forms of its code. Without FLOODWALL_PROVE it proves only a few policies.
func TestRules(t *testing.T) {
	requireSolver(t)
	for _, d := range goodPolicies(t, short) {
		p, err := programOf(d.file, d.text)
		if err != nil {
			t.Logf("%s is left out: %s", d.name(), strings.SplitN(err.Error(), "\n", 2)[0])
			continue
		}
		for _, form := range forms {
			provedRules(t, d.name(), p, form)
		}
	}
}

// TestManyRules proves tables of more rules than a word has bits. The code searches them in a loop.
func TestManyRules(t *testing.T) {
	requireSolver(t)
	p, err := programOf("policy.yaml", "devices: [eth0]\nchecks: off\n"+manyRules())
	if err != nil {
		t.Fatal(err)
	}
	provedRules(t, "many", p, xdp.Tables)
}

// TestRulesOfRandomPolicies proves the rules of random policies. FLOODWALL_PROVE is their number; without it, two. One in six has 100 to 200 rules.
func TestRulesOfRandomPolicies(t *testing.T) {
	requireSolver(t)
	n := 2
	if text := os.Getenv("FLOODWALL_PROVE"); text != "" {
		n, _ = strconv.Atoi(text)
	}
	for i := range n {
		r := rand.New(rand.NewPCG(2, uint64(i)))
		rules := 1 + r.IntN(10)
		if i%6 == 2 {
			rules = 100 + r.IntN(101)
		}
		w := &subject.Writer{Rand: r, Payload: true}
		text, _ := w.Policy(t, rules)
		for _, form := range forms {
			provedRules(t, fmt.Sprintf("random %d", i), subject.Lower(t, text).Program, form)
		}
	}
}
