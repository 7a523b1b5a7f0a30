// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/replica"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/sources/feed"
)

// Explanation says what happens to a packet.
type Explanation struct {
	Packet  string     `json:"packet"`
	Verdict string     `json:"verdict"`
	Reason  string     `json:"reason"` // the name of a rule or check; "default"; "not-ip"; "kernel", if the kernel itself drops the packet; or "uncounted"
	Stage   plan.Stage `json:"stage"`
	Path    Path       `json:"path,omitempty"` // for a policy that runs in XDP: the path through the program that decided
	Policy  string     `json:"policy"`
	Line    int        `json:"line,omitempty"` // the line of the rule in the policy
	Passed  []Passed   `json:"passed,omitempty"`

	Translated string `json:"translated,omitempty"` // the destination to which this host's NAT may redirect the packet

	Protection string `json:"protection,omitempty"` // the service whose protection handles the packet
	Always     bool   `json:"always,omitempty"`     // whether the protection answers every SYN with a cookie, not only SYNs above a rate
	Active     *bool  `json:"active,omitempty"`     // for a running policy: whether the protection answers with cookies now
}

// Path is a path of a packet through the XDP program.
type Path string

// The paths of a packet through the XDP program.
const (
	PathEntry   Path = "entry"   // the generated code for usual frames
	PathGeneral Path = "general" // the C program, which can decide every frame
)

// path returns the path through the program that gave an answer.
func path(a datapath.Answer) Path {
	if a.Entry {
		return PathEntry
	}
	return PathGeneral
}

// Passed is a rule or a check that matched but did not decide: its limit is not exceeded, or it only counts.
type Passed struct {
	Name    string `json:"name"`
	Verdict string `json:"verdict"`           // the verdict of the rule or check
	Above   bool   `json:"above,omitempty"`   // whether it applies only above its limit
	Observe bool   `json:"observe,omitempty"` // whether it only counts
	Reply   bool   `json:"reply,omitempty"`   // whether the rule matches replies to flows that started inside
	Line    int    `json:"line,omitempty"`

	Connections uint32 `json:"connections,omitempty"` // the number of connections above which the rule applies
}

// Explain says what a policy does with a packet on a target. It evaluates the policy without calls to the kernel. It assumes that dynamic sets are
// empty, that there are no connections, and that no limit is exceeded. The set `local` has the addresses of this host, or is empty when they cannot
// be listed.
func (c *Compiled) Explain(spec packet.Spec, t plan.Target) (Explanation, error) {
	plan, err := c.Plan(t)
	if err != nil {
		return Explanation{}, err
	}
	program, p := plan.Program, spec.Packet()
	e := Explanation{Packet: spec.String(), Stage: plan.First(), Policy: c.Policy.File}
	world := ir.World{Member: c.member, Over: e.below(program), Connections: e.none, Observe: e.observed(program)}
	verdict, reason := program.Eval(&p, world)
	e.Verdict, e.Reason = verdict.String(), program.ReasonName(reason)
	switch reason.Kind {
	case ir.ReasonRule:
		r := &program.Rules[reason.Index]
		e.Line, e.Stage = r.Line, plan.StageFor(reason.Index, &p, c.World())
		if r.Protect > 0 {
			protection := &program.Protections[r.Protect-1]
			e.Protection, e.Always = protection.Service, protection.Always
		}
	case ir.ReasonDefault:
		e.Stage = plan.StageForDefault(&p, c.World())
		if c.Policy.Replies && p.Value[packet.State] == packet.StateNew {
			e.Passed = append(e.Passed, Passed{Name: compile.RepliesRule, Verdict: ir.Pass.String(), Reply: true})
		}
	}
	return e, nil
}

// World returns the state that Explain assumes besides the packet. Only the set of the host's own addresses has entries, and no limit is exceeded.
func (c *Compiled) World() ir.World { return ir.World{Member: c.member} }

// below returns a function that reports that no limit is exceeded. The function records the rules that have a limit.
func (e *Explanation) below(p *ir.Program) func(limit int, _ *packet.Packet) bool {
	return func(limit int, _ *packet.Packet) bool {
		i := slices.IndexFunc(p.Rules, func(r ir.Rule) bool { return len(r.Over) > 0 && r.Over[0] == limit }) // the other layers of the limit come after the first
		if i >= 0 {
			r := &p.Rules[i]
			e.Passed = append(e.Passed, Passed{Name: r.Name, Verdict: r.Verdict.String(), Above: true, Observe: r.Observe, Line: r.Line})
		}
		return false
	}
}

// none returns 0: it assumes that there are no connections. It records the rule r, which limits connections.
func (e *Explanation) none(r *ir.Rule, _ *packet.Packet) int {
	e.Passed = append(e.Passed, Passed{Name: r.Name, Verdict: r.Verdict.String(), Above: true, Observe: r.Observe, Line: r.Line, Connections: r.Connections.Most})
	return 0
}

// observed returns a function that records rules and checks that only count.
func (e *Explanation) observed(p *ir.Program) func(ir.Reason) {
	return func(reason ir.Reason) {
		passed := Passed{Name: p.ReasonName(reason), Verdict: ir.Drop.String(), Observe: true}
		if reason.Kind == ir.ReasonRule {
			r := &p.Rules[reason.Index]
			passed.Verdict, passed.Line = r.Verdict.String(), r.Line
		}
		e.Passed = append(e.Passed, passed)
	}
}

// member reports whether a dynamic set contains an address. It knows only the set of the host's own addresses: it does not read the running policy.
func (c *Compiled) member(set int, a netip.Addr) bool {
	if !c.Program.Sets[set].Dynamic.Local {
		return false
	}
	return slices.Contains(c.own(), a)
}

// Fetcher returns a fetcher of lists. When a server does not answer, the fetcher says whether the running policy drops the answers.
func (in Instance) Fetcher() *feed.Fetcher {
	return &feed.Fetcher{Drops: func(ctx context.Context, answer packet.Spec) string {
		e, err := in.Explain(ctx, answer)
		switch {
		case err != nil || e.Verdict == ir.Pass.String(): // nothing runs, or the policy passes the answer
			return ""
		case e.Reason == "default":
			return "its default"
		}
		return fmt.Sprintf("%q", e.Reason)
	}}
}

// Explain returns the decision of the running policy about a packet. It asks the XDP program itself, and a copy of the netfilter rules in a separate
// network namespace. Nothing is counted and no packet is sent. Limits in XDP have their present state.
func (in Instance) Explain(ctx context.Context, spec packet.Spec) (Explanation, error) {
	l, err := generation.Find(ctx, in.Dir)
	if err != nil {
		return Explanation{}, err
	}
	defer l.Close()
	g := l.Generations[0]
	m := g.Manifest
	e := Explanation{Packet: spec.String(), Policy: m.File}
	if spec.Packet().Value[packet.Verified] == 1 {
		return Explanation{}, &ProbeError{
			fmt.Sprintf("%s: what is loaded knows itself who is verified", spec),
			"leave verified out, or ask `floodwall explain` with the policy file",
		}
	}
	if g.Program != nil {
		answer, err := g.Program.Ask(m.Key, spec.Frame())
		if err != nil {
			return Explanation{}, err
		}
		e.Verdict, e.Reason, e.Stage = ir.Verdict(answer.Verdict).String(), m.Reason(answer.Slot), plan.StageXDP
		e.Line = m.Line(e.Reason)
		if err := e.protectedBy(g); err != nil {
			return Explanation{}, err
		}
		if err := e.repliesTold(g, spec); err != nil {
			return Explanation{}, err
		}
		if answer.Slot != image.SlotWaiting && (answer.Slot != image.SlotDefault || m.At.Stage == plan.StageXDP) {
			e.Path = path(answer)
			return e, nil
		}
	}
	return probeNetfilter(ctx, g, spec, e)
}

// repliesTold adds to the packet's text that the program treated the packet as a reply. It returns an error if the question calls the packet a reply
// but the program knows no such flow.
func (e *Explanation) repliesTold(g *generation.Generation, spec packet.Spec) error {
	state := spec.Packet().Value[packet.State]
	asked := state == packet.StateEstablished || state == packet.StateRelated
	reply := e.Reason == compile.RepliesRule
	if reply == asked || !reply && e.Reason != "default" {
		return nil
	}
	if reply {
		e.Packet += " state=" + replica.StateName(packet.StateEstablished)
		return nil
	}
	if !slices.ContainsFunc(g.Manifest.Rules, func(r manifest.Rule) bool { return r.Name == compile.RepliesRule && r.Stage == plan.StageXDP }) {
		return nil
	}
	return &ProbeError{
		fmt.Sprintf("%s: the loaded program knows itself which packets are replies, and none of this flow has left", spec),
		"leave the state out, send a packet of the flow first, or ask `floodwall explain` with the policy file, which takes any state",
	}
}

// protectedBy adds the state of the protection if the rule that decides belongs to one.
func (e *Explanation) protectedBy(g *generation.Generation) error {
	i := slices.IndexFunc(g.Manifest.Rules, func(r manifest.Rule) bool { return r.Name == e.Reason && r.Protect > 0 })
	if i < 0 {
		return nil
	}
	var s Status
	if err := s.reportProtections(g); err != nil {
		return err
	}
	p := s.Protections[g.Manifest.Rules[i].Protect-1]
	e.Protection, e.Always, e.Active = p.Service, p.Always, &p.Active
	return nil
}
