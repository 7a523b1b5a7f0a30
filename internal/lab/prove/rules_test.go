package prove

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab/prove/smt"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/sources/feed"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/subject"
)

// programOf is the part of a policy for XDP.
func programOf(file, text string) (*ir.Program, error) {
	p, err := policy.Parse(file, []byte(text))
	if err != nil {
		return nil, err
	}
	compiled, err := control.Compile(p, feed.InState(os.TempDir()))
	if err != nil {
		return nil, err
	}
	pl, err := compiled.Plan(plan.TargetXDP)
	if err != nil {
		return nil, err
	}
	program, _ := pl.Only()
	return program, nil
}

// provedRules proves the rules in a form of their code, and fails the test where they are not proved. It reports whether there is code of that form.
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

// TestRules proves what decide() decides of the good policies, in both forms of its code; without FLOODWALL_PROVE of a few.
func TestRules(t *testing.T) {
	requireSolver(t)
	files, err := filepath.Glob("../../../policy/testdata/good/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(err, len(files))
	}
	for _, f := range files {
		if os.Getenv("FLOODWALL_PROVE") == "" && !slices.Contains(short, filepath.Base(f)) {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		p, err := programOf(f, string(text))
		if err != nil {
			t.Logf("%s is left out: %s", filepath.Base(f), strings.SplitN(err.Error(), "\n", 2)[0])
			continue
		}
		for _, form := range forms {
			provedRules(t, filepath.Base(f), p, form)
		}
	}
}

// TestManyRules proves tables of more rules than a word has bits, which the code looks through in a loop.
func TestManyRules(t *testing.T) {
	requireSolver(t)
	p, err := programOf("policy.yaml", "devices: [eth0]\nchecks: off\n"+manyRules())
	if err != nil {
		t.Fatal(err)
	}
	provedRules(t, "many", p, xdp.Tables)
}

// TestRulesOfRandomPolicies proves those of random policies, FLOODWALL_PROVE of them; without, two. One in six has 100 to 200 rules.
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
