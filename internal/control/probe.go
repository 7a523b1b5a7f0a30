package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
	"github.com/floodwall/floodwall/internal/plan"
	"github.com/floodwall/floodwall/internal/replica"
)

// Reasons that no policy names: see probeNetfilter.
const (
	reasonNotIP     = "not-ip"
	reasonKernel    = "kernel"
	reasonUncounted = "uncounted"
)

// ProbeError says why what is in netfilter cannot answer for a packet.
type ProbeError struct{ Problem, Remedy string }

func (e *ProbeError) Error() string { return e.Problem }

// Hint is the remedy.
func (e *ProbeError) Hint() string { return e.Remedy }

// probeNetfilter is the answer of the ruleset in netfilter, to a packet that came past XDP with an answer so far. The reason
// is "kernel" when the kernel itself drops the packet before the stage that would decide, for instance because it is
// neither for this host nor to be forwarded, and "uncounted" when it is dropped by a line without a counter, which
// somebody added. When conntrack calls a packet otherwise than new, and the question says no state, the packet of the
// answer has the state.
func (l *live) probeNetfilter(ctx context.Context, g *generation, spec packet.Spec, e Explanation) (Explanation, error) {
	m, p := g.manifest, spec.Packet()
	ruleset := m.ruleset()
	switch {
	case ruleset == nil:
		return e, nil
	case p.Kind == packet.NotIP:
		e.Verdict, e.Reason, e.Stage = ir.Pass.String(), reasonNotIP, m.first()
		return e, nil
	}
	tool := replica.Nft
	if ruleset.Kind == kindIptables {
		tool = replica.Iptables
	}
	answer, err := replica.Ask(ctx, replica.Part{Tool: tool, Name: ruleset.Name, Devices: m.Devices}, spec.Frame(), p)
	if err == nil {
		err = checkState(spec, p.Value[packet.State], answer)
	}
	if err != nil {
		return e, err
	}
	if answer.State != "" && answer.State != replica.StateName(p.Value[packet.State]) {
		e.Packet += " state=" + answer.State
	}
	return m.conclude(ruleset, e, p, answer)
}

// checkState compares what conntrack said with what was asked. A question that says no state leaves it to conntrack.
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

// stageOf is the stage of the rules at a hook.
var stageOf = map[replica.Hook]plan.Stage{
	replica.Ingress: plan.StageIngress, replica.Prerouting: plan.StageRaw,
	replica.Input: plan.StageFilter, replica.Forward: plan.StageFilter,
}

// conclude reads the answer of a copy.
func (m *manifest) conclude(ruleset *ruleset, e Explanation, p packet.Packet, a *replica.Answer) (Explanation, error) {
	drops := a.Dropped != ""
	decision, found := m.decision(ruleset, a.Moved, drops)
	if drops && !found { // what SYNPROXY takes goes no further, either
		decision, found = m.proxied(ruleset, a.Moved)
	}
	e.Verdict, e.Reason, e.Stage, e.Line = decision.verdict, decision.reason, decision.stage, m.line(decision.reason)
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

// kept reports whether the kernel keeps a packet that is lost before a hook: a fragment, unless it has VLAN tags that it
// may be dropped for. At ingress fragments are as they came.
func kept(p packet.Packet, lost replica.Hook) bool {
	return p.Kind == packet.IP && p.Value[packet.Fragment] != packet.FragmentNone &&
		p.Value[packet.VLAN] == packet.VLANNone && lost != replica.Ingress
}

// decision is a reason, with what it decides and where.
type decision struct {
	verdict, reason string
	stage           plan.Stage
}

// decision finds the first reason whose counter moved, and whose verdict is what the packet's fate shows.
func (m *manifest) decision(ruleset *ruleset, moved []string, drops bool) (decision, bool) {
	names := map[string]bool{}
	for _, name := range moved {
		names[name] = true
	}
	for _, c := range m.decisions(ruleset) {
		if names[c.counter] && (c.verdict != ir.Pass.String()) == drops {
			return c.decision, true
		}
	}
	return decision{}, false
}

// proxied finds what became of a packet of a protected service: SYNPROXY, which is there for the rule of the protection,
// has taken it, or it was dropped beside it.
func (m *manifest) proxied(ruleset *ruleset, moved []string) (decision, bool) {
	for number, of := range ruleset.Proxies {
		rule := slices.IndexFunc(m.Rules, func(r ruleEntry) bool { return r.Protect == number+1 })
		switch {
		case rule < 0:
		case slices.Contains(moved, of.Proxied):
			return decision{m.Rules[rule].Verdict, m.Rules[rule].Name, plan.StageFilter}, true
		case slices.Contains(moved, of.Invalid):
			return decision{ir.Drop.String(), m.Protections[number].name(ir.AckInvalid), plan.StageFilter}, true
		}
	}
	return decision{}, false
}

// counted is a decision with its counter in netfilter.
type counted struct {
	decision
	counter string
}

// decisions lists what a ruleset decides: checks, rules in their order, and the default; not what only counts.
func (m *manifest) decisions(ruleset *ruleset) (list []counted) {
	for name, counter := range ruleset.Checks {
		check, _ := packet.CheckNamed(name)
		if m.Observed.Has(check) {
			continue
		}
		list = append(list, counted{decision{ir.Drop.String(), name, m.Target.CheckStage(check)}, counter})
	}
	for i, r := range m.Rules {
		if i < len(ruleset.Rules) && ruleset.Rules[i] != "" && !r.Observe {
			list = append(list, counted{decision{r.Verdict, r.Name, r.Stage}, ruleset.Rules[i]})
		}
	}
	return append(list, counted{decision{m.Default, "default", m.At.Stage}, ruleset.Default})
}
