// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// SlotPlan assigns a counter slot to each rule, guard and outcome of a protection of a program. A rule that stays in the policy keeps its slot and so
// its exact count: during the change both programs count in the same slot. The slot of a removed rule stays unused until the apply after the next,
// because the old program may still count in it.
type SlotPlan struct {
	Slots  []uint32
	Guards []uint32 // slots of the responses that each guard drops

	Outcomes [][ir.NumOutcomes]uint32 // slots of the outcomes of packets of protected services
	fresh    []uint32                 // slots that must start at zero
}

// PlanSlots plans the slots of the program p. `before` are the manifests of earlier generations, newest first. Rules and guards that are also in the
// newest of these manifests keep their slots.
func PlanSlots(p *ir.Program, before []*Manifest) SlotPlan {
	kept := map[uint64]uint32{}
	used := map[uint32]bool{}
	for i, m := range before {
		for _, u := range m.UsedSlots() {
			used[u.Slot] = true
			if i == 0 {
				kept[u.fingerprint] = u.Slot
			}
		}
	}
	var plan SlotPlan
	next := uint32(image.SlotRules)
	slotOf := func(key uint64) uint32 {
		if slot, ok := kept[key]; ok {
			delete(kept, key)
			return slot
		}
		for used[next] {
			next++
		}
		used[next] = true
		plan.fresh = append(plan.fresh, next)
		return next
	}
	for _, r := range p.Rules {
		plan.Slots = append(plan.Slots, slotOf(fingerprint(p, r)))
	}
	for _, g := range p.Guards {
		plan.Guards = append(plan.Guards, slotOf(guardFingerprint(g.Service)))
	}
	for i := range p.Protections {
		var slots [ir.NumOutcomes]uint32
		for o := range ir.NumOutcomes {
			slots[o] = slotOf(outcomeFingerprint(p.Protections[i].Service, o))
		}
		plan.Outcomes = append(plan.Outcomes, slots)
	}
	return plan
}

// Size is the number of slots that a map of counters must have.
func (s SlotPlan) Size() uint32 {
	n := uint32(image.SlotRules)
	for _, slot := range slices.Concat(s.Slots, s.Guards) {
		n = max(n, slot+1)
	}
	for _, slots := range s.Outcomes {
		n = max(n, slices.Max(slots[:])+1)
	}
	return n
}

// Zero clears the counters of the rules and guards that are new.
func (s SlotPlan) Zero(counters *ebpf.Map) error { return Zero(counters, s.fresh) }

// Zero sets the counters in the given slots to zero.
func Zero(counters *ebpf.Map, slots []uint32) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	nothing := make([]image.Counter, cpus)
	for _, slot := range slots {
		if err := counters.Put(slot, nothing); err != nil {
			return fmt.Errorf("clearing counter %d: %w", slot, err)
		}
	}
	return nil
}

// CarryCounters copies the counts to a larger map. It loses the packets that the old program counts after the copy. Only an apply that needs a larger
// map has this loss.
func CarryCounters(from, to *ebpf.Map) error {
	var counts []image.Counter
	for slot := range min(from.MaxEntries(), to.MaxEntries()) {
		if err := from.Lookup(slot, &counts); err != nil {
			return fmt.Errorf("reading counter %d: %w", slot, err)
		}
		if err := to.Put(slot, counts); err != nil {
			return fmt.Errorf("writing counter %d: %w", slot, err)
		}
	}
	return nil
}
