package compile_test

import (
	"testing"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
	"github.com/floodwall/floodwall/internal/testutil"
)

// web is TCP port 80, as a value of packet.DPort.
const web = 80

// protecting is a program that protects port 80, and drops all else.
func protecting(p ir.Protection, limits ...ir.Limit) *ir.Program {
	p.Service = "web"
	p.Ports = []ir.Range{{First: web, Last: web}}
	return &ir.Program{
		Default: ir.Drop, Limits: limits, Protections: []ir.Protection{p},
		Rules: []ir.Rule{{Name: "web:syn", Verdict: ir.Pass, Protect: 1, Match: []ir.Match{
			{Field: packet.DPort, Values: p.Ports},
		}}},
	}
}

func TestProtectLoads(t *testing.T) {
	program := protecting(ir.Protection{Always: true, Flows: 1000})
	x, err := compile.ToXDP(program, compile.XDPOptions{QuestionKey: questionKey})
	if err != nil {
		t.Fatal(err)
	}
	testutil.RequireRoot(t)
	t.Log(processed(t, x))
	(&subject{program: program}).load(t, x)
}
