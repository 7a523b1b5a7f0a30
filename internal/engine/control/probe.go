// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/kernel/replica"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Reasons that are not part of a policy: see probeNetfilter.
const (
	reasonNotIP     = "not-ip"
	reasonKernel    = "kernel"
	reasonUncounted = "uncounted"
)

// ProbeError says why netfilter cannot answer for a packet.
type ProbeError struct{ Problem, Remedy string }

func (e *ProbeError) Error() string { return e.Problem }

// Hint is the remedy.
func (e *ProbeError) Hint() string { return e.Remedy }

// probeNetfilter returns the answer of the ruleset in netfilter for a packet that XDP has passed on. e is the answer so far. The reason is "kernel"
// when the kernel itself drops the packet before the stage that would decide, for instance because the packet is neither for this host nor to be
// forwarded. The reason is "uncounted" when a rule without a counter drops the packet; such a rule is not part of the policy. If the question names
// no state, and conntrack gives the packet a state other than new, the packet in the answer has that state.
func probeNetfilter(ctx context.Context, g *generation.Generation, spec packet.Spec, e Explanation) (Explanation, error) {
	m, p := g.Manifest, spec.Packet()
	set := m.Ruleset()
	switch {
	case set == nil:
		return e, nil
	case p.Kind == packet.NotIP:
		e.Verdict, e.Reason, e.Stage = ir.Pass.String(), reasonNotIP, m.FirstStage()
		return e, nil
	}
	tool := replica.Nft
	if set.Kind == netfilter.KindIptables {
		tool = replica.Iptables
	}
	if t := m.TemporaryRuleset; t != nil {
		answer, err := replica.Ask(ctx, replica.Part{Tool: tool, Name: t.Name, Devices: m.Devices}, spec.Frame(), p)
		if err != nil {
			return e, err
		}
		for i, counter := range t.Rules {
			if !m.Rules[len(m.Rules)-len(t.Rules)+i].Observe && answer.Dropped != "" && slices.Contains(answer.Moved, counter) {
				e.Verdict, e.Reason, e.Stage = ir.Drop.String(), m.Temporary[i].Name, stageOf[answer.Dropped]
				return e, nil
			}
		}
	}
	answer, err := replica.Ask(ctx, replica.Part{Tool: tool, Name: set.Name, Devices: m.Devices}, spec.Frame(), p)
	if err == nil {
		err = checkState(spec, p.Value[packet.State], answer)
	}
	if err != nil {
		return e, err
	}
	if answer.State != "" && answer.State != replica.StateName(p.Value[packet.State]) {
		e.Packet += " state=" + answer.State
	}
	return conclude(m, set, e, p, answer)
}

// checkState returns an error if the state that conntrack found differs from the state in the question. A question without a state accepts any.
func checkState(spec packet.Spec, asked uint32, a *replica.Answer) error {
	want := replica.StateName(asked)
	if asked == packet.StateNew || a.State == "" || a.State == want {
		return nil
	}
	return &ProbeError{
		fmt.Sprintf("%s: conntrack calls this packet %s, and can only be made to call it %s by packets before it", spec, a.State, want),
		fmt.Sprintf("ask with state=%s, or `floodwall explain` with the policy file, which takes any state", a.State),
	}
}

// stageOf maps a hook to the stage of its rules.
var stageOf = map[replica.Hook]plan.Stage{
	replica.Ingress: plan.StageIngress, replica.Prerouting: plan.StageRaw,
	replica.Input: plan.StageFilter, replica.Forward: plan.StageFilter,
}

// conclude derives the explanation from the answer of the copied ruleset.
func conclude(m *manifest.Manifest, set *netfilter.Ruleset, e Explanation, p packet.Packet, a *replica.Answer) (Explanation, error) {
	drops := a.Dropped != ""
	decision, found := m.Decision(set, a.Moved, drops)
	if drops && !found { // SYNPROXY takes the packet, so the packet does not continue
		decision, found = m.Proxied(set, a.Moved)
	}
	e.Verdict, e.Reason, e.Stage, e.Line = decision.Verdict, decision.Reason, decision.Stage, m.Line(decision.Reason)
	switch {
	case drops && found:
		e.Stage = stageOf[a.Dropped]
	case drops:
		e.Verdict, e.Reason, e.Stage = ir.Drop.String(), reasonUncounted, stageOf[a.Dropped]
	case found:
	case a.Lost == "":
		e.Verdict, e.Reason, e.Stage = ir.Pass.String(), "default", m.At.Stage
	case kept(p, a.Lost):
		return e, &ProbeError{
			fmt.Sprintf("%s: the kernel keeps fragments until it has the whole packet, before stage %s", e.Packet, stageOf[a.Lost]),
			"ask for the whole packet",
		}
	default:
		e.Verdict, e.Reason, e.Stage = ir.Drop.String(), reasonKernel, stageOf[a.Lost]
	}
	return e, nil
}

// kept reports whether the kernel holds a packet that does not reach a hook, to reassemble it. The packet must be a fragment without VLAN tags: the
// kernel may have dropped a tagged packet for its tags. Before ingress the kernel holds no fragments.
func kept(p packet.Packet, lost replica.Hook) bool {
	return p.Kind == packet.IP && p.Value[packet.Fragment] != packet.FragmentNone &&
		p.Value[packet.VLAN] == packet.VLANNone && lost != replica.Ingress
}
