// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/features"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// mayEgress checks that the kernel has the egress hook. If not, guards do not limit packets that leave, and there is a note. For a protected UDP
// service the missing hook is an error: the program would know none of the service's clients.
func (t *transaction) mayEgress() error {
	err := features.Egress()
	if err == nil {
		return nil
	}
	for _, f := range t.compiled.Program.Floods {
		return fmt.Errorf("%sservice %q: udp: what the service answers cannot be seen: %w", t.compiled.Program.Place(f.Line, f.Col), f.Service, err)
	}
	t.xdp.Egress = false
	t.manifest.NoEgress(t.compiled.Program.Guards)
	if t.compiled.Program.SamplesLeaving {
		t.note(fmt.Sprintf("detect: nobody sees whom this host answers, so a crowd is not told from a flood: %v", err))
	}
	if len(t.compiled.Program.Guards) == 0 {
		return nil
	}
	t.note(fmt.Sprintf("guards limit no responses, no client becomes verified by an answer over TCP, and no zone counts as flooded: %v", err))
	return nil
}

// guards adds the counters of guards for responses to s, in the form of rules.
func (s *Status) guards(m *manifest.Manifest, c *manifest.Counts) {
	for _, g := range m.Guards {
		if !g.Limited {
			continue
		}
		n := c.Slot(g.Slot)
		s.Rules = append(s.Rules, RuleStatus{Name: g.Name(), Stage: plan.StageEgress, Why: "responses leave there",
			Verdict: ir.Drop.String(), Packets: n.Packets, Bytes: n.Bytes, Line: g.Line, Observe: g.Observe, Beside: true})
	}
}

// verified adds the number of verified clients to s.
func (s *Status) verified(g *generation.Generation) error {
	if g.Program == nil || len(g.Manifest.Guards) == 0 {
		return nil
	}
	clients, most, err := g.Program.VerifiedClients()
	if err == nil && most > 1 { // otherwise no guard verifies clients
		s.Verified = &VerifiedStatus{clients, most}
	}
	return err
}

// UDPStatus is the status of the services that are protected from floods over UDP.
type UDPStatus struct {
	Services []UDPServiceStatus `json:"services"`
	Known    int                `json:"known"` // number of known clients of all services
	New      int                `json:"new"`   // number of clients that the services have answered, but for too short a time to be known
}

// UDPServiceStatus is the status of one service that is protected from floods over UDP.
type UDPServiceStatus struct {
	Service  string  `json:"service"`
	Protocol string  `json:"protocol"`
	Flood    bool    `json:"flood"`          // whether packets above its limits are dropped now
	Left     float64 `json:"left,omitempty"` // seconds until the flood state ends, if the flood ends now
}

// udp adds the services that are protected from floods over UDP to s.
func (s *Status) udp(g *generation.Generation, n datapath.Occupancy) error {
	memory, err := g.Program.Memory(image.FloodStates)
	if err != nil {
		return err
	}
	now, states := coarse(), memory[image.FloodStates]
	s.UDP = &UDPStatus{Known: n.Known, New: n.New}
	for i, service := range g.Manifest.UDP {
		left := 0.0
		if state := states[min(i*image.FloodStateSize, len(states)):]; len(state) >= image.FloodStateSize {
			left = until(state, now)
		}
		s.UDP.Services = append(s.UDP.Services, UDPServiceStatus{service.Service, service.Protocol, left > 0, left})
	}
	return nil
}
