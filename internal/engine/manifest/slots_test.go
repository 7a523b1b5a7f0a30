// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// TestPlanSlots plans slots in the state after an apply that was killed, when two generations run. The newer one has no rule b, but the older one
// still counts in rule b's slot. The test calls internal functions, because it cannot stop an apply at that point.
func TestPlanSlots(t *testing.T) {
	a, b, c := ir.Rule{Name: "a"}, ir.Rule{Name: "b"}, ir.Rule{Name: "c"}
	entry := func(r ir.Rule, slot uint32) Rule {
		return Rule{Slot: image.SlotRules + slot, Fingerprint: fingerprint(&ir.Program{}, r)}
	}
	newer := &Manifest{Rules: []Rule{entry(a, 0)}}
	older := &Manifest{Rules: []Rule{entry(a, 0), entry(b, 1)}}
	for _, test := range []struct {
		name   string
		before []*Manifest
		rules  []ir.Rule
		want   []uint32
		fresh  int
	}{
		{"nothing before", nil, []ir.Rule{a, b}, []uint32{0, 1}, 2},
		{"one before", []*Manifest{newer}, []ir.Rule{c, a}, []uint32{1, 0}, 1},
		{"two before", []*Manifest{newer, older}, []ir.Rule{c, a}, []uint32{2, 0}, 1},
		{"a rule of the older one", []*Manifest{newer, older}, []ir.Rule{a, b}, []uint32{0, 2}, 1},
	} {
		plan := PlanSlots(&ir.Program{Rules: test.rules}, test.before)
		var got []uint32
		for _, slot := range plan.Slots {
			got = append(got, slot-image.SlotRules)
		}
		if diff := cmp.Diff(test.want, got); diff != "" || len(plan.fresh) != test.fresh {
			t.Errorf("%s: %d fresh, want %d; slots (-want +got):\n%s", test.name, len(plan.fresh), test.fresh, diff)
		}
	}
}

// TestPlanGuardSlots plans the slots of a guard whose service stays, and of a new guard.
func TestPlanGuardSlots(t *testing.T) {
	before := &Manifest{
		Rules:  []Rule{{Slot: image.SlotRules, Fingerprint: fingerprint(&ir.Program{}, ir.Rule{Name: "a"})}},
		Guards: []Guard{{Service: "dns", Slot: image.SlotRules + 5, Limited: true}},
	}
	plan := PlanSlots(&ir.Program{
		Rules:  []ir.Rule{{Name: "b"}, {Name: "a"}},
		Guards: []ir.Guard{{Service: "new"}, {Service: "dns"}},
	}, []*Manifest{before})
	if diff := cmp.Diff([]uint32{image.SlotRules + 2, image.SlotRules + 5}, plan.Guards); diff != "" {
		t.Errorf("slots of guards (-want +got):\n%s", diff)
	}
	if plan.Size() != image.SlotRules+6 || len(plan.fresh) != 2 {
		t.Errorf("%d slots, fresh are %d", plan.Size(), plan.fresh)
	}
	if got := before.Reason(image.SlotRules + 5); got != "dns:responses" {
		t.Errorf("the slot stands for %q", got)
	}
}
