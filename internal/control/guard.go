package control

import (
	"fmt"
	"hash/fnv"

	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/plan"
)

// guardEntry is what a guard counts: responses above its limit.
type guardEntry struct {
	Service string `json:"service"`
	Slot    uint32 `json:"slot"`
	Line    int    `json:"line,omitempty"` // in the policy file
	Limited bool   `json:"limited"`        // there is a limit
	Observe bool   `json:"observe,omitempty"`
}

// name is that of the reason.
func (g *guardEntry) name() string { return g.Service + ":responses" }

// guardFingerprint is fingerprint for the guard of a service.
func guardFingerprint(service string) uint64 {
	h := fnv.New64a()
	fmt.Fprintln(h, "guard", service)
	return h.Sum64()
}

// usedSlot is a counter slot of a rule, a guard or a protection, and what tells whether it stays.
type usedSlot struct {
	slot        uint32
	fingerprint uint64
}

// usedSlots lists the slots of rules, guards and protections.
func (m *manifest) usedSlots() (list []usedSlot) {
	for _, r := range m.Rules {
		list = append(list, usedSlot{r.Slot, r.Fingerprint})
	}
	for _, g := range m.Guards {
		list = append(list, usedSlot{g.Slot, guardFingerprint(g.Service)})
	}
	for _, s := range m.Protections {
		for o, slot := range s.Slots {
			list = append(list, usedSlot{slot, outcomeFingerprint(s.Service, ir.Outcome(o))})
		}
	}
	return list
}

// mayEgress leaves out what guards do about packets that leave, and says so, when the kernel has no place for it.
func (l *loaded) mayEgress() {
	err := datapath.EgressSupported()
	if err == nil {
		return
	}
	l.xdp.Egress = false
	l.manifest.noEgress(l.compiled.Program.Guards)
	l.notes = append(l.notes, fmt.Sprintf("guards limit no responses, and no client becomes verified by an answer over TCP: %v", err))
}

// noEgress notes that nothing is done about packets that leave, on behalf of these guards.
func (m *manifest) noEgress(guards []ir.Guard) {
	for i, g := range guards {
		m.Guards[i].Limited = false
		if g.Out >= 0 {
			m.Limits[g.Out].Unused = true
		}
	}
}

// guards reports what guards have counted of responses, in the manner of rules.
func (s *Status) guards(m *manifest, c *tallies) {
	for _, g := range m.Guards {
		if !g.Limited {
			continue
		}
		n := c.slot(g.Slot)
		s.Rules = append(s.Rules, RuleStatus{Name: g.name(), Stage: plan.StageEgress, Why: "responses leave there",
			Verdict: ir.Drop.String(), Packets: n.Packets, Bytes: n.Octets, Line: g.Line, Observe: g.Observe})
	}
}

// verified reports how many clients guards know.
func (s *Status) verified(g *generation) error {
	if g.program == nil || len(g.manifest.Guards) == 0 {
		return nil
	}
	clients, most, err := g.program.VerifiedClients()
	if err == nil && most > 1 { // else no guard asks
		s.Verified = &VerifiedStatus{clients, most}
	}
	return err
}
