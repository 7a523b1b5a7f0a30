// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// MovesByFlood reports whether the daemon moves the program between tc and XDP: the policy has `xdp: flooded`, and the user asked for no mode.
func (m *Manifest) MovesByFlood() bool {
	return m.XDP != nil && m.XDP.When == policy.XDPFlooded && (m.Mode == datapath.Keep || m.Mode == datapath.Auto) && datapath.Instead() == datapath.TC
}

// RefusedSlots lists the counters of packets that the program drops or answers.
func (m *Manifest) RefusedSlots() (slots []uint32) {
	for check := range packet.NumChecks {
		if m.Checks.Has(check) {
			slots = append(slots, uint32(check))
		}
	}
	for _, r := range m.Rules {
		if r.Stage == plan.StageXDP && r.Verdict != ir.Pass.String() && !r.Observe {
			slots = append(slots, r.Slot)
		}
	}
	for _, s := range m.Protections {
		for o, slot := range s.Slots {
			if ir.Outcome(o).Drops() || ir.Outcome(o) == ir.SynAnswered {
				slots = append(slots, slot)
			}
		}
	}
	if m.At.Stage == plan.StageXDP && m.Default != ir.Pass.String() {
		slots = append(slots, image.SlotDefault)
	}
	return slots
}
