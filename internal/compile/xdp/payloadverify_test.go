// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestVerifierConditions loads the largest policies in which every rule tests payload, names and limits.
func TestVerifierConditions(t *testing.T) {
	for _, test := range []struct {
		name, policy string
		rules        int
		form         xdpgen.Form
		long         bool // tested in long runs only, because a larger policy of the same form is always tested
	}{
		{"64 expressions, 600 rules, straight", largest(subject.AllChecks(), 56, 7, 600), 600, xdpgen.Straight, false},
		{"64 expressions, 600 rules, tables", largest(subject.AllChecks(), 56, 7, 600), 600, xdpgen.Tables, true},
		{"1000 rules, tables", largest(subject.AllChecks(), 8, 7, 1000), 1000, xdpgen.Tables, false},
	} {
		if test.long && !testutil.Long() {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := subject.Lower(t, test.policy)
			askAll(s.Program, test.rules)
			x, err := xdpgen.Generate(s.Program, xdpgen.Options{Form: test.form, QuestionKey: subject.QuestionKey})
			if err != nil {
				t.Fatal(err)
			}
			testutil.RequireRoot(t)
			n := processed(t, x)
			t.Logf("%d processed", n)
			if n > subject.MostVerified {
				t.Errorf("the verifier processed %d instructions, want at most %d", n, subject.MostVerified)
			}
		})
	}
}

// askAll gives the first rules every condition that a rule can have.
func askAll(p *ir.Program, rules int) {
	w := newPatternWriter(rand.New(rand.NewPCG(1, 2)), 64)
	limit := len(p.Limits) // after the limits of essential rules
	p.Limits = append(p.Limits, ir.Limit{Rule: "r0", Rate: 1000, Per: 1e9, Burst: 1000, Src: &ir.Prefixes{V4: 16, V6: 48}, Max: 1000})
	for i := range 32 {
		p.Names = append(p.Names, ir.NameSet{Names: []string{fmt.Sprint("n", i), strings.Repeat("a.", 15) + "b"}})
	}
	for i := range p.Rules[:rules] {
		r := &p.Rules[i]
		r.Payload = []ir.PayloadMatch{w.match(), w.match()}
		r.Names = []ir.NameMatch{{Sets: []int{i % 32}}, {Sets: []int{(i + 1) % 32}, Not: true}}
		r.Over = slices.Repeat([]int{limit}, 8)
		r.Observe = i%5 == 0
	}
	p.Rules[0].Verdict = ir.Truncate
}
