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

// keepConnections adds the connections of the kernel to the new program's flow table, and copies the state of protections. The table of the
// generation before is shared already.
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

// know adds the connections of the kernel to a flow table: that of a new program, or of a generation that is returned to.
func know(open func() (*datapath.Table, error), m *manifest.Manifest) error {
	flows, err := open()
	if flows == nil || err != nil {
		return err
	}
	defer flows.Close()
	return flows.Learn(m.Protects)
}

// rejoinNext adds the connections that were made since to a generation that is returned to. Otherwise a packet would have to ask for each of
// them, which an ACK flood can delay. So an error does not prevent the return.
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

// trackConnected has conntrack know the connections that began at this host, where it tells the replies of a policy.
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

// A handshake with a cookie ends within a roundTrip, except for losses. Protections that end rest for longer than that: they answer no SYN
// and pass all segments until the change is made or, if it fails, until they go on.
const (
	roundTrip = time.Second
	Resting   = 5 * time.Second
)

// windDown winds down what runs for what is to run.
func (t *transaction) windDown(ctx context.Context) error { return windDown(ctx, t.now, t.manifest) }

// windDown stops the protections of a generation that the next one lacks (nil: it has none) from answering SYNs, and waits for the cookies
// that were sent: after the change no program could check them.
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

// RotateKeys draws a new key for the cookies of the policy that runs, and reports whether it did. Cookies that were sent remain valid. It
// also removes reply flows that are over, whose times come round. It is no error if nothing is loaded.
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

// keepReplies notes the flows that are open: the first apply cuts none of them. Later programs go on with the table, and miss what began
// while another policy ran.
func (t *transaction) keepReplies(context.Context) error { return knowReplies(t.program.ReplyFlows) }

// trackReplies has conntrack know the flows that are open, where it tells replies. An error does not take back the change.
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

// joinReplies notes those that began since, up to the moment from which the program itself notes them. An error does not take back
// the switch.
func (t *transaction) joinReplies(context.Context) error {
	if t.program != nil {
		t.cut(knowReplies(t.program.ReplyFlows))
	}
	return nil
}

// sweepReplies removes what is over from the table of a generation.
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

// cut notes for the operator that open flows may be cut.
func (t *transaction) cut(err error) {
	if err != nil {
		t.notes = append(t.notes, fmt.Sprintf("flows that were open before may be cut, as not all could be noted: %v", err))
	}
}

// knowReplies adds the flows of the kernel to a table of reply flows, if there is one.
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

// replyFlows reports the table of reply flows.
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
