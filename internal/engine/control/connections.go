// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/os/periodic"
)

// keepConnections adds the kernel's connections to the new program's flow table, and copies the state of protections. If the previous generation has
// a flow table, the new program shares that table.
func (t *transaction) keepConnections(context.Context) error {
	if len(t.found) == 0 {
		return nil
	}
	if t.now != nil {
		if err := t.program.CarryStates(t.inherits.States, t.manifest.Staying(t.now.Manifest)); err != nil {
			return err
		}
	}
	return know(t.program.Flows, t.manifest)
}

// know adds the kernel's connections to a flow table: of a new program, or of the generation that Rollback returns to.
func know(open func() (*datapath.Table, error), m *manifest.Manifest) error {
	flows, err := open()
	if flows == nil || err != nil {
		return err
	}
	defer flows.Close()
	return flows.Learn(m.Protects)
}

// rejoinNext adds connections to the flow table of the generation that the change returns to: those made while another generation ran. Without this
// step the program would have to look up each such connection, which an ACK flood can delay. An error here does not prevent the return.
func (t *transaction) rejoinNext(context.Context) error {
	if t.toProgram() {
		t.late = append(t.late, know(t.next.Program.Flows, t.next.Manifest))
		t.cut(knowReplies(t.next.Program.ReplyFlows))
	}
	if t.next == nil {
		return nil
	}
	t.cut(trackConnected(t.next.Manifest))
	return nil
}

// trackConnected adds the connections that this host opened to conntrack, if the policy uses conntrack to recognise replies.
func trackConnected(m *manifest.Manifest) error {
	asks := func(r manifest.Rule) bool {
		return r.Name == compile.RepliesRule && (r.Stage == plan.StageFilter || m.At.Last() == plan.StageFilter)
	}
	if !slices.ContainsFunc(m.Rules, asks) {
		return nil
	}
	serves, err := datapath.Listening()
	if err != nil {
		return err
	}
	return datapath.TrackConnected(func(f datapath.ReplyFlow) bool { return f.Proto == packet.ProtoTCP && serves[f.Own.Port()] })
}

// A handshake with a cookie ends within roundTrip, unless packets are lost. Before a change, the protections that the new policy lacks pause for
// Resting, which is longer. While they pause they answer no SYN and pass all segments. If the change fails, they continue after that time.
const (
	roundTrip = time.Second
	Resting   = 5 * time.Second
)

// windDown pauses the protections that the new policy lacks.
func (t *transaction) windDown(ctx context.Context) error { return windDown(ctx, t.now, t.manifest) }

// windDown pauses the protections of g that next lacks: they no longer answer SYNs. It then waits until the cookies that were sent have returned,
// because no program could check them after the change. next is nil when there is no next generation.
func windDown(ctx context.Context, g *generation.Generation, next *manifest.Manifest) error {
	if g == nil || g.Program == nil {
		return nil
	}
	stay := map[int]bool{}
	if next != nil {
		for _, then := range next.Staying(g.Manifest) {
			stay[then] = true
		}
	}
	var ending []int
	for i := range g.Manifest.Protections {
		if !stay[i] {
			ending = append(ending, i)
		}
	}
	if ending == nil {
		return nil
	}
	answered, err := g.Program.Rest(ending, Resting)
	if !answered || err != nil {
		return err
	}
	periodic.Sleep(ctx, roundTrip)
	return nil
}

// RotateKeys draws a new key for the cookies of the running policy, and returns true if it did. Cookies that were sent remain valid. RotateKeys also
// removes expired reply flows, before their wrapping times become ambiguous. It returns no error if nothing is loaded.
func (in Instance) RotateKeys(ctx context.Context) (rotated bool, err error) {
	err = in.change(ctx, func(t *transaction) (err error) {
		rotated, err = t.state.RotateKeys()
		for _, g := range t.live.All() {
			err = errors.Join(err, sweepReplies(g))
		}
		return err
	})
	if errors.Is(err, datapath.ErrNotLoaded) {
		return false, nil
	}
	return rotated, err
}

// keepReplies adds the open flows to the table of reply flows, so that the first apply cuts none of them. Later programs use the same table. The
// table lacks flows that started while another policy ran.
func (t *transaction) keepReplies(context.Context) error { return knowReplies(t.program.ReplyFlows) }

// trackReplies adds the open flows to conntrack, if the policy uses conntrack to recognise replies. An error does not undo the change.
func (t *transaction) trackReplies(context.Context) error {
	p := t.stages.Program
	asks := slices.ContainsFunc(p.Rules, func(r ir.Rule) bool { return r.Name == compile.RepliesRule })
	if !asks || t.target == plan.TargetXDP && t.stages.Default.Last() != plan.StageFilter {
		return nil
	}
	var open []ir.Range
	p.Decided(func(v ir.Range) { open = append(open, v) })
	t.cut(datapath.TrackConnected(func(f datapath.ReplyFlow) bool {
		port := uint32(f.Own.Port())
		if f.Proto == packet.ProtoUDP {
			port |= packet.PortUDP
		}
		return slices.ContainsFunc(open, func(v ir.Range) bool { return v.First <= port && port <= v.Last })
	}))
	return nil
}

// joinReplies adds the flows that started before the new program was attached and records flows itself. An error does not undo the switch.
func (t *transaction) joinReplies(context.Context) error {
	if t.program != nil {
		t.cut(knowReplies(t.program.ReplyFlows))
	}
	return nil
}

// sweepReplies removes expired flows from the reply-flow table of a generation.
func sweepReplies(g *generation.Generation) error {
	if g.Program == nil {
		return nil
	}
	table, err := g.Program.ReplyFlows()
	if table == nil || err != nil {
		return err
	}
	table.Sweep()
	table.Close()
	return nil
}

// cut adds a note for the operator that open flows may be cut.
func (t *transaction) cut(err error) {
	if err != nil {
		t.notes = append(t.notes, fmt.Sprintf("flows that were open before may be cut, as not all could be noted: %v", err))
	}
}

// knowReplies adds the kernel's open flows to a table of reply flows, if there is one.
func knowReplies(open func() (*datapath.ReplyFlows, error)) error {
	table, err := open()
	if table == nil || err != nil {
		return err
	}
	defer table.Close()
	table.Sweep()
	list, err := datapath.OpenFlows()
	table.Add(list)
	return err
}

// replyFlows adds the status of the table of reply flows to s.
func (s *Status) replyFlows(g *generation.Generation) error {
	if g.Program == nil {
		return nil
	}
	table, err := g.Program.ReplyFlows()
	if table == nil || err != nil {
		return err
	}
	counts, err := g.Program.ReplyCounts()
	n := table.Occupancy()
	s.ReplyFlows = &ReplyFlowStatus{n.Flows, n.Fit, counts.Displaced, counts.Refused}
	if err == nil && len(g.Manifest.UDP) > 0 {
		err = s.udp(g, n)
	}
	return err
}
