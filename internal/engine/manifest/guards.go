package manifest

import (
	"fmt"
	"hash/fnv"

	"github.com/floodwall/floodwall/internal/model/ir"
)

// Guard is what a guard counts: responses above its limit.
type Guard struct {
	Service string `json:"service"`
	Slot    uint32 `json:"slot"`
	Line    int    `json:"line,omitempty"` // in the policy file
	Limited bool   `json:"limited"`        // there is a limit
	Observe bool   `json:"observe,omitempty"`
}

// UDPService is a service that is protected from floods over UDP.
type UDPService struct {
	Service  string `json:"service"`
	Protocol string `json:"protocol"`
}

// Name is that of the reason.
func (g *Guard) Name() string { return g.Service + ":responses" }

// guardFingerprint is fingerprint for the guard of a service.
func guardFingerprint(service string) uint64 {
	h := fnv.New64a()
	fmt.Fprintln(h, "guard", service)
	return h.Sum64()
}

// UsedSlot is a counter slot of a rule, a guard or a protection, and what tells whether it stays.
type UsedSlot struct {
	Slot        uint32
	fingerprint uint64
}

// UsedSlots lists the slots of rules, guards and protections.
func (m *Manifest) UsedSlots() (list []UsedSlot) {
	for _, r := range m.Rules {
		list = append(list, UsedSlot{r.Slot, r.Fingerprint})
	}
	for _, g := range m.Guards {
		list = append(list, UsedSlot{g.Slot, guardFingerprint(g.Service)})
	}
	for _, s := range m.Protections {
		for o, slot := range s.Slots {
			list = append(list, UsedSlot{slot, outcomeFingerprint(s.Service, ir.Outcome(o))})
		}
	}
	return list
}

// NoEgress notes that nothing is done about packets that leave, on behalf of these guards.
func (m *Manifest) NoEgress(guards []ir.Guard) {
	for i, g := range guards {
		m.Guards[i].Limited = false
		if g.Out >= 0 {
			m.Limits[g.Out].Unused = true
		}
		if n := g.Names; n != nil {
			m.Limits[n.Flooded].Unused, m.Limits[n.GoOn].Unused, m.Limits[n.New].Unused = true, true, true
		}
	}
}
