package prove

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/lab/prove/smt"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/subject"
)

func trySubject(file, text string) (*Subject, error) {
	p, err := policy.Parse(file, []byte(text))
	if err != nil {
		return nil, err
	}
	lowered, _, err := compile.Lower(p)
	if err != nil {
		return nil, err
	}
	optimized, _ := compile.Optimize(lowered)
	forTarget, _ := plan.For(optimized, plan.TargetXDP)
	pl, err := plan.Hoist(forTarget, plan.TargetXDP)
	if err != nil {
		return nil, err
	}
	program, _ := pl.Only()
	x, err := xdp.Generate(program, xdp.Options{QuestionKey: 0x5eed})
	if err != nil {
		return nil, err
	}
	return NewSubject(program, x)
}

func proveAll(t *testing.T, name string, s *Subject) {
	start := time.Now()
	proved, bad := 0, ""
	for _, k := range kinds() {
		r := s.Kind(context.Background(), k, smt.Limits{Time: 20 * time.Second})
		if r.Answer == smt.Unsatisfiable && r.Why == "" {
			proved++
		} else {
			bad += fmt.Sprintf("\n   %s: %d %s %d terms %v %x", r.Kind, r.Answer, r.Why, r.Terms, r.Time, r.Frame[:min(len(r.Frame), 90)])
		}
	}
	r := s.Outside(context.Background(), smt.Limits{Time: 20 * time.Second})
	if r.Answer != smt.Unsatisfiable {
		bad += fmt.Sprintf("\n   outside %d %s %x %v", r.Answer, r.Why, r.Frame[:min(len(r.Frame), 90)], r.Time)
	}
	t.Logf("%s: %d proved, %v, outside %v %s", name, proved, time.Since(start), r.Time, bad)
}

func TestGoodPolicies(t *testing.T) {
	files, _ := filepath.Glob("../../../policy/testdata/good/*.yaml")
	for _, f := range files {
		if only := os.Getenv("ONLY"); only != "" && !strings.Contains(f, only) {
			continue
		}
		text, _ := os.ReadFile(f)
		s, err := trySubject(f, string(text))
		if err != nil {
			t.Logf("%s: %v", f, err)
			continue
		}
		proveAll(t, filepath.Base(f), s)
	}
}

func TestRandomPolicies(t *testing.T) {
	for i := range 500 {
		if only := os.Getenv("ONLY"); only != "" && only != fmt.Sprint(i) {
			continue
		}
		r := rand.New(rand.NewPCG(1, uint64(i)))
		rules := 1 + r.IntN(10)
		if i%6 == 2 {
			rules = 100 + r.IntN(100)
		}
		text, _, _ := subject.RandomPolicy(t, r, rules)
		s, err := trySubject("policy.yaml", text)
		if err != nil {
			t.Logf("%d: %v", i, err)
			continue
		}
		proveAll(t, fmt.Sprint(i), s)
	}
}
