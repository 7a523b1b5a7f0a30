package prove

import (
	"context"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/lab/prove/smt"
	"github.com/floodwall/floodwall/policy"
)

func subjectOf(t testing.TB, text string) *Subject {
	t.Helper()
	p, err := policy.Parse("policy.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	lowered, _, err := compile.Lower(p)
	if err != nil {
		t.Fatal(err)
	}
	optimized, _ := compile.Optimize(lowered)
	forTarget, _ := plan.For(optimized, plan.TargetXDP)
	pl, err := plan.Hoist(forTarget, plan.TargetXDP)
	if err != nil {
		t.Fatal(err)
	}
	program, _ := pl.Only()
	x, err := xdp.Generate(program, xdp.Options{QuestionKey: 0x5eed})
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSubject(program, x)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFirst(t *testing.T) {
	for _, text := range []string{
		"devices: [eth0]\ndefault: drop\nreplies: drop\nchecks: off\nrules: [{name: web, port: [tcp/80, tcp/443], then: pass}, {name: dns, port: udp/53, then: pass}]\n",
		"devices: [eth0]\ndefault: drop\nreplies: drop\nchecks: strict\nrules: [{name: web, port: [tcp/80, tcp/443], then: pass}, {name: dns, port: udp/53, then: pass}]\n",
		"devices: [eth0]\ndefault: drop\nchecks: standard\nsets: {bad: [192.0.2.0/24, 198.51.100.7, '2001:db8::/32']}\nrules: [{name: bad, from: $bad, then: drop}, {name: web, port: [tcp/80, tcp/443], then: pass}, {name: dns, port: udp/53, then: pass}]\n",
	} {
		s := subjectOf(t, text)
		for _, k := range kinds() {
			r := s.Kind(context.Background(), k, smt.Limits{Time: 20 * time.Second})
			t.Logf("%s: %d %s decided %t, %d terms, %v %x", r.Kind, r.Answer, r.Why, r.Decided, r.Terms, r.Time, r.Frame[:min(len(r.Frame), 80)])
		}
	}
}
