package control

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/xdp"
)

// slotPlan gives each rule, guard and outcome of a protection of a program its counter slot. A rule that stays keeps its slot, and with it
// its counts, to the packet: the old and the new program count in the same place while they change over. Slots of rules
// that go stay unused until the apply after, since the old program may still count in them.
type slotPlan struct {
	slots  []uint32
	guards []uint32 // of the responses that each cuts

	outcomes [][ir.NumOutcomes]uint32 // of what becomes of packets of protected services
	fresh    []uint32                 // slots that must begin at zero
}

// planSlots plans the slots of p, of which rules and guards of the generations before, newest first, keep those of the
// newest.
func planSlots(p *ir.Program, before []*manifest) slotPlan {
	kept := map[uint64]uint32{}
	used := map[uint32]bool{}
	for i, m := range before {
		for _, u := range m.usedSlots() {
			used[u.slot] = true
			if i == 0 {
				kept[u.fingerprint] = u.slot
			}
		}
	}
	var plan slotPlan
	next := uint32(xdp.SlotRules)
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
		plan.slots = append(plan.slots, slotOf(fingerprint(p, r)))
	}
	for _, g := range p.Guards {
		plan.guards = append(plan.guards, slotOf(guardFingerprint(g.Service)))
	}
	for i := range p.Protections {
		var slots [ir.NumOutcomes]uint32
		for o := range ir.NumOutcomes {
			slots[o] = slotOf(outcomeFingerprint(p.Protections[i].Service, o))
		}
		plan.outcomes = append(plan.outcomes, slots)
	}
	return plan
}

// most is the number of slots that a map of counters must have.
func (s slotPlan) most() uint32 {
	n := uint32(xdp.SlotRules)
	for _, slot := range slices.Concat(s.slots, s.guards) {
		n = max(n, slot+1)
	}
	for _, slots := range s.outcomes {
		n = max(n, slices.Max(slots[:])+1)
	}
	return n
}

// zero clears the counters of rules and guards that are new.
func (s slotPlan) zero(counters *ebpf.Map) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	nothing := make([]xdp.Counter, cpus)
	for _, slot := range s.fresh {
		if err := counters.Put(slot, nothing); err != nil {
			return fmt.Errorf("clearing counter %d: %w", slot, err)
		}
	}
	return nil
}

// move brings the counts so far to a larger map. Packets that the old program counts from then on are lost to the
// counters: of all applies only those that outgrow the map pay this.
func move(from, to *ebpf.Map) error {
	var counts []xdp.Counter
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
