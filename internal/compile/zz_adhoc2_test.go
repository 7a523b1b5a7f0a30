package compile_test

import (
	"fmt"
	"testing"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/ir"
	"math/rand/v2"
)

func TestZTables(t *testing.T) {
	for _, n := range []int{0, 1, 20} {
		s := lower(t, largest(allChecks(), 56, 7, 600))
		w := newPatternWriter(rand.New(rand.NewPCG(1, 2)), 64)
		for i := range n {
			s.program.Rules[i].Payload = []ir.PayloadMatch{w.match(), w.match()}
		}
		for _, form := range []compile.Form{compile.Straight, compile.Tables} {
			x, err := compile.ToXDP(s.program, compile.XDPOptions{Form: form, QuestionKey: questionKey})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Println(n, form, processed(t, x))
		}
	}
}
