// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"testing"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// TestChecksPlanned checks that the plan has the right list of the checks that iptables can make: those for which the generator writes lines, in
// either family.
func TestChecksPlanned(t *testing.T) {
	for c := range packet.NumChecks {
		program := &ir.Program{
			Checks: packet.CheckSet(0).With(c),
			Sets:   []ir.Set{{Name: "local", Dynamic: &ir.Dynamic{Local: true}, Max: 1}},
		}
		pl, err := plan.Hoist(program, plan.TargetIptables)
		if err != nil {
			t.Fatal(err)
		}
		made := false
		for family := range uint32(2) {
			f := &familyBuilder{builder: newBuilder(pl, Options{Name: "t"}), family: family}
			made = made || len(f.check(c)) > 0
		}
		if planned := plan.TargetIptables.Makes(c); planned != made {
			t.Errorf("check %s: the plan says %v, lines are written: %v", c, planned, made)
		}
		if _, why := checksLeft[c]; !made && !why {
			t.Errorf("check %s is not made, and nothing says why", c)
		}
	}
}
