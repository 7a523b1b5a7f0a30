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

// mayEgress removes the part of guards for packets that leave, with a note, if the kernel lacks the hook. A protected UDP service is an error: none of its
// clients would be known.
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

// guards reports the counters of guards for responses, in the form of rules.
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

// verified reports the number of verified clients.
func (s *Status) verified(g *generation.Generation) error {
	if g.Program == nil || len(g.Manifest.Guards) == 0 {
		return nil
	}
	clients, most, err := g.Program.VerifiedClients()
	if err == nil && most > 1 { // else no guard asks
		s.Verified = &VerifiedStatus{clients, most}
	}
	return err
}

// UDPStatus is how the services stand that are protected from floods over UDP.
type UDPStatus struct {
	Services []UDPServiceStatus `json:"services"`
	Known    int                `json:"known"` // clients of all of them that are known,
	New      int                `json:"new"`   // and that they have answered, but not for long enough
}

// UDPServiceStatus is how one stands.
type UDPServiceStatus struct {
	Service  string  `json:"service"`
	Protocol string  `json:"protocol"`
	Flood    bool    `json:"flood"`          // packets are dropped that exceed its limits
	Left     float64 `json:"left,omitempty"` // seconds for which that goes on when the flood ends now
}

// udp reports the services that are protected from floods.
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
