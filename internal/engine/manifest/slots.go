package manifest

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// SlotPlan gives each rule, guard and outcome of a protection of a program its counter slot. A rule that stays keeps its slot, and with it
// its counts, to the packet: the old and the new program count in the same place while they change over. Slots of rules
// that go stay unused until the apply after, since the old program may still count in them.
type SlotPlan struct {
	Slots  []uint32
	Guards []uint32 // of the responses that each cuts

	Outcomes [][ir.NumOutcomes]uint32 // of what becomes of packets of protected services
	fresh    []uint32                 // slots that must begin at zero
}

// PlanSlots plans the slots of p, of which rules and guards of the generations before, newest first, keep those of the
// newest.
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

// Zero clears the counters of rules and guards that are new.
func (s SlotPlan) Zero(counters *ebpf.Map) error { return Zero(counters, s.fresh) }

// Zero clears the counters of some slots.
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

// CarryCounters brings the counts so far to a larger map. Packets that the old program counts from then on are lost to the
// counters: of all applies only those that outgrow the map pay this.
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
