// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// Home says when the program of a device runs at XDP.
type Home struct {
	policy.XDP        // When is never auto
	Name       string `json:"name,omitempty"` // the kernel's name of the device, if the policy has another one
	Auto       bool   `json:"auto,omitempty"` // When follows from Cost
	Cost       string `json:"cost,omitempty"` // what XDP costs the device, if Auto; "": nothing that the device shows
}

// Learn takes what changes of the mode did to the devices. If the driver of a device changed offloads or queues, XDP costs the device these.
func (m *Manifest) Learn(moves map[string]datapath.Move) {
	for named, h := range m.Homes {
		device := cmp.Or(h.Name, named)
		if move := moves[device]; h.Auto && h.Cost == "" && move.Changed != nil {
			h.When, h.Cost = policy.XDPFlooded, fmt.Sprintf("the driver of %s changes its offloads or queues for XDP (%s)", device, strings.Join(move.Changed, ", "))
			m.Homes[named] = h
		}
	}
}

// Home returns the Home of a device. device is the name in the policy or the kernel's name.
func (m *Manifest) Home(device string) Home {
	if h, ok := m.Homes[device]; ok {
		return h
	}
	for _, h := range m.Homes {
		if h.Name == device {
			return h
		}
	}
	if m.Homes == nil && m.XDP != nil {
		return Home{XDP: *m.XDP}
	}
	return Home{XDP: policy.XDP{When: policy.XDPAlways}}
}

// MovesByFlood reports whether the daemon moves the program of a device between tc and XDP: the policy says so, and the user asked for no mode.
func (m *Manifest) MovesByFlood(device string) bool {
	return m.Home(device).When == policy.XDPFlooded && (m.Mode == datapath.Keep || m.Mode == datapath.Auto) && datapath.Instead() == datapath.TC
}

// Floods returns the settings of the devices whose programs the daemon moves, each setting once.
func (m *Manifest) Floods() (settings []policy.XDP) {
	for _, d := range m.Devices {
		if x := m.Home(d).XDP; m.MovesByFlood(d) && !slices.Contains(settings, x) {
			settings = append(settings, x)
		}
	}
	return settings
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
