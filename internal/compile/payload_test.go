package compile_test

import (
	"testing"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/ir"
)

func TestPayloadTry(t *testing.T) {
	s := &subject{program: &ir.Program{
		Default: ir.Pass,
		Rules: []ir.Rule{
			{Name: "a", Verdict: ir.Drop, Payload: []ir.PayloadMatch{{Any: []ir.Pattern{{Text: []byte("evil"), Within: 256}, {Text: []byte("ab"), Within: 20, NoCase: true}}}}},
			{Name: "n", Verdict: ir.Drop, Names: []ir.NameMatch{{Sets: []int{0}}}},
		},
		Names: []ir.NameSet{{Names: []string{"evil.example", "x"}}},
	}}
	x, err := compile.ToXDP(s.program, compile.XDPOptions{Form: compile.Straight, QuestionKey: questionKey})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(processed(t, x))
	s.load(t, x)
}
