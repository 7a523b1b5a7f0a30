// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/policy"
)

// TestOwned divides rules by their owners, and checks how many more rules are allowed.
func TestOwned(t *testing.T) {
	t.Parallel()
	list := []manifest.Temporary{{Name: "1", Owner: "a"}, {Name: "2", Owner: "b"}, {Name: "3", Owner: "a"}}
	own, others := Owned(list, "a")
	if len(own) != 2 || own[0].Name != "1" || own[1].Name != "3" || len(others) != 1 || others[0].Name != "2" {
		t.Errorf("own %v, others %v", own, others)
	}
	for n, want := range map[int]int{0: Most, 1: Most - 1, Most: 0, Most + 1: 0} {
		if got := Free(make([]manifest.Temporary, n)); got != want {
			t.Errorf("beside %d there may be %d, want %d", n, got, want)
		}
	}
}

// TestValueIsNotParsed compiles a rule whose text differs from its value. For a rule that this process has made, the value must be used and the text
// not parsed.
func TestValueIsNotParsed(t *testing.T) {
	t.Parallel()
	value, err := policy.ParseRule("{name: auto-1, proto: udp, observe: true, then: drop}")
	if err != nil {
		t.Fatal(err)
	}
	rule := manifest.Temporary{Name: "auto-1", Owner: manifest.Automatic, Value: value, Rule: "no rule", Until: time.Now().Add(time.Hour)}
	program, err := Before(&ir.Program{}, []manifest.Temporary{rule}, nil)
	if err != nil || Check(rule) != nil || len(program.Rules) != 1 || !program.Rules[0].Observe {
		t.Errorf("%+v, %v", program, err)
	}
	if rule.Value = nil; Check(rule) == nil {
		t.Error("without its value, the text is not read")
	}
}
