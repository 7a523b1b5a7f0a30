// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"hash/fnv"

	"github.com/floodwall/floodwall/internal/model/ir"
)

// Guard is a guard of a service, which limits the responses that the service sends. It counts the responses above the limit.
type Guard struct {
	Service string `json:"service"`
	Slot    uint32 `json:"slot"`
	Line    int    `json:"line,omitempty"` // the line in the policy file
	Limited bool   `json:"limited"`        // whether there is a limit
	Observe bool   `json:"observe,omitempty"`
}

// UDPService is a service that is protected from floods over UDP.
type UDPService struct {
	Service  string `json:"service"`
	Protocol string `json:"protocol"`
}

// Name returns the name of the reason that the guard counts.
func (g *Guard) Name() string { return g.Service + ":responses" }

// guardFingerprint is the function fingerprint for the guard of a service.
func guardFingerprint(service string) uint64 {
	h := fnv.New64a()
	fmt.Fprintln(h, "guard", service)
	return h.Sum64()
}

// UsedSlot is the counter slot of a rule, a guard or a protection. The fingerprint identifies this owner of the slot across policies.
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

// NoEgress records that the limits of the given guards have no effect, because packets that leave are not filtered.
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
