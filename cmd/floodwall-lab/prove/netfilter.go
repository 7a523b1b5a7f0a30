// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/nftables"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/kernel/nftable"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Netfilter is a policy's nftables table as the kernel has stored it, ready for a proof.
type Netfilter struct {
	Program *ir.Program
	world   *netWorld
}

// CompileNetfilter writes the table of a plan for nftables, loads the table in a separate network namespace, and reads it back from the kernel. It
// needs root.
func CompileNetfilter(ctx context.Context, pl *plan.Plan, devices []string) (*Netfilter, error) {
	if len(devices) == 0 {
		devices = []string{"eth0"}
	}
	x, err := nftables.Generate(pl, nftables.Options{Devices: devices})
	if err != nil {
		return nil, err
	}
	names := []nftable.Name{{Family: unix.NFPROTO_INET, Name: x.Table}}
	if strings.Contains(x.Script, "\ntable netdev ") {
		names = append(names, nftable.Name{Family: unix.NFPROTO_NETDEV, Name: x.Table})
	}
	tables, err := nftable.Load(ctx, x.Script, devices, names...)
	if err != nil {
		return nil, err
	}
	w := newNetWorld(pl.Program, x, devices, tables)
	for i := range pl.Rules {
		w.stages = append(w.stages, slices.Index(pl.Target.Stages(), pl.Rules[i].Stage))
	}
	w.defaultStage = slices.Index(pl.Target.Stages(), pl.Default.Stage)
	return &Netfilter{pl.Program, w}, nil
}

// Prove proves all kinds of packets. It calls progress with each result.
func (n *Netfilter) Prove(ctx context.Context, l smt.Limits, progress func(Result)) (*Report, error) {
	if !smt.Available() {
		return nil, smt.ErrNoSolver
	}
	start := time.Now()
	r := &Report{Policy: n.Program.File, Target: string(plan.TargetNftables), Rules: len(n.Program.Rules), LeftOut: n.leftOut()}
	r.add(n.sets(&r.LookedUp), progress)
	for _, k := range netKinds() {
		r.add(n.Kind(ctx, k, l), progress)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	r.add(n.Others(ctx, l), progress)
	r.Time = time.Since(start)
	return r, ctx.Err()
}

// Others proves that packets from devices that are not in the policy pass, and that nothing counts these packets.
func (n *Netfilter) Others(ctx context.Context, l smt.Limits) Result {
	start := time.Now()
	all := Result{Kind: "all by other devices", Answer: smt.Unsatisfiable, Decided: true}
	for _, k := range netKinds() {
		if k.tagged {
			continue
		}
		r := n.part(ctx, k, l, true)
		all.CPU += r.CPU
		if r.Answer != smt.Unsatisfiable {
			r.Kind, r.CPU = all.Kind+": "+r.Kind, all.CPU
			all = r
			break
		}
	}
	all.Time = time.Since(start)
	return all
}

// sets compares the constant sets of addresses with those of the policy, span by span.
func (n *Netfilter) sets(compared *int) Result {
	start := time.Now()
	r := Result{Kind: "sets of addresses", Answer: smt.Unsatisfiable, Decided: true}
	for _, i := range slices.Sorted(maps.Keys(n.world.out.Sets)) {
		s := n.world.out.Sets[i]
		if s.Dynamic || s.Live {
			continue
		}
		for family, name := range []string{s.V4, s.V6} {
			want := spansOfSet(n.Program.Sets[i].Static, family == 1)
			parts, err := n.world.parts(i, family == 1)
			if err != nil {
				r.Answer, r.Why = smt.Unknown, err.Error()
				return r
			}
			have := normalize(slices.Concat(parts...))
			*compared += len(want)
			if !slices.EqualFunc(want, have, func(a, b span) bool { return slices.Equal(a.first, b.first) && slices.Equal(a.last, b.last) }) {
				r.Answer, r.Why = smt.Satisfiable, fmt.Sprintf("set %s has other addresses than the policy's", name)
				return r
			}
		}
	}
	r.Time = time.Since(start)
	return r
}

// Kind proves that packets of a kind get the verdict of the program, and that the right counters count these packets.
func (n *Netfilter) Kind(ctx context.Context, k kind, l smt.Limits) Result {
	return n.part(ctx, k, l, false)
}

func (n *Netfilter) part(ctx context.Context, k kind, l smt.Limits, others bool) (r Result) {
	start := time.Now()
	r.Kind = k.String()
	defer func() { r.Time = time.Since(start) }()
	q, err := n.query(k, others)
	if err != nil {
		r.Answer, r.Why = smt.Unknown, err.Error()
		return r
	}
	r.Decided = true
	answer, model, err := q.solveParts(ctx, l)
	r.answered(q.c, answer, err, func() { r.Frame, r.Why, r.State = q.frameOf(model), q.explain(model), q.stateOf(model) })
	return r
}

// solveParts asks z3 about all differences at once. If z3 gives up, solveParts asks about each difference separately.
func (q *query) solveParts(ctx context.Context, l smt.Limits) (smt.Answer, *smt.Model, error) {
	first := l
	if first.Time == 0 {
		first.Time = time.Minute
	}
	first.Time /= 4
	answer, model, err := q.c.Solve(ctx, first, q.differ)
	if answer != smt.Unknown || err != nil {
		return answer, model, err
	}
	for _, p := range q.parts {
		answer, model, err := q.c.Solve(ctx, first, q.c.And(p.cond, q.claimed))
		if answer != smt.Unsatisfiable || err != nil {
			return answer, model, err
		}
	}
	return smt.Unsatisfiable, nil, nil
}

// query returns the formula of the packets of a kind for which the tables behave differently from the program.
func (n *Netfilter) query(k kind, others bool) (*query, error) {
	c := smt.New()
	f := newFrame(c, whole(c, k))
	d := decode(c, f, k)
	w := &world{program: n.Program, netfilter: n.world}
	for i := range n.Program.Rules {
		if r := &n.Program.Rules[i]; r.Asks != ir.NoFlood || len(r.Names) > 0 || r.Unanswered {
			return nil, fmt.Errorf("not covered: rule %s asks for floods or names of queries", r.Name)
		}
		w.slots = append(w.slots, uint32(image.SlotRules+i))
	}
	w.decoded = d
	m := mean(d, w)
	netWorld := *n.world
	netWorld.others = others
	machine := newNetMachine(d, &netWorld)
	passed, err := machine.run()
	if err != nil {
		return nil, err
	}
	q := &query{c: c, frame: f, meaning: m, decided: c.True(), visited: machine.visited, counted: machine.counted}
	if others {
		q.untouched(machine)
		q.claimed = c.And(c.Not(m.outside), netWorld.assumptions(m), netWorld.elsewhere(d))
		q.differ = c.And(q.union(), q.claimed)
		return q, nil
	}
	q.verdicts(machine, passed)
	q.counters(n.world, machine)
	for limit := range n.Program.Limits {
		same := c.Eq(orFalse(c, machine.asked[limit]), orFalse(c, m.charged[limit]))
		q.part(c.And(c.Not(same), c.Not(machine.settled())), fmt.Sprintf("limit %s is charged by one only", n.Program.Limits[limit].Rule))
	}
	for _, x := range machine.faults {
		q.part(x.cond, x.why)
	}
	q.claimed = c.And(c.Not(m.outside), n.world.assumptions(m))
	q.differ = c.And(q.union(), q.claimed)
	return q, nil
}

// netKinds returns the kinds of packets that are proved, including packets of other protocols.
func netKinds() []kind {
	return append(kinds(), kind{}, kind{v6: true}, kind{tagged: true}, kind{tagged: true, v6: true})
}

// whole returns the known bytes of a frame of a kind that is no fragment.
func whole(c *smt.Context, k kind) map[int]*smt.Term {
	known := k.known(c)
	if at := k.ip() + 6; !k.v6 {
		known[at], known[at+1] = c.Concat(c.Var(fmt.Sprintf("low%d", at), 2), c.Const(6, 0)), c.Const(8, 0)
	}
	return known
}

// union returns a formula that holds if any part differs.
func (q *query) union() *smt.Term {
	out := q.c.False()
	for _, p := range q.parts {
		out = q.c.Or(out, p.cond)
	}
	return out
}

// untouched adds the packets that do not pass, and the packets that are counted or charged.
func (q *query) untouched(n *netMachine) {
	q.part(q.c.Or(n.dropped, n.rejected, n.proxied), "it does not pass")
	for _, name := range slices.Sorted(maps.Keys(n.counted)) {
		q.part(n.counted[name], "counter "+name+" counts it")
	}
	for limit, asked := range n.asked {
		q.part(asked, "limit "+n.world.program.Limits[limit].Rule+" is charged")
	}
}

// settled returns the packets that checks at prerouting or at filter drop. Before that, rules at ingress have counted and charged these packets.
func (m *netMachine) settled() *smt.Term {
	out := m.False()
	late := packet.CheckSet(0).With(packet.OwnSource)
	if m.world.program.RepliesFirst {
		late |= packet.SenderChecks
	}
	for check := range packet.NumChecks {
		if late.Has(check) && m.world.out.Checks[check] != "" {
			out = m.Or(out, m.failed[check])
		}
	}
	return out
}

// verdicts adds the packets with a wrong verdict. SYNPROXY may drop or take over packets that a protected rule passes, so such packets are not wrong.
func (q *query) verdicts(n *netMachine, passed *smt.Term) {
	c, m := q.c, q.meaning
	is := func(v ir.Verdict) *smt.Term { return orFalse(c, m.gets[v]) }
	q.part(c.And(passed, c.Not(is(ir.Pass))), "it passes")
	q.part(c.And(n.dropped, c.Not(c.Or(is(ir.Drop), m.protected))), "it is dropped")
	q.part(c.And(n.rejected, c.Not(is(ir.Reject))), "it is rejected")
	q.part(n.wrongAnswer, "it is rejected with an answer of another kind")
	q.part(c.And(n.proxied, c.Not(m.protected)), "SYNPROXY gets it")
}

// counters adds the packets that a counter counts wrongly, and the packets that it should count and does not count.
func (q *query) counters(w *netWorld, n *netMachine) {
	c, m := q.c, q.meaning
	settled := n.settled()
	want := map[string]*smt.Term{}
	slot := func(number uint32) *smt.Term { return orFalse(c, m.decides[number]) }
	expect := func(name, what string, is *smt.Term) {
		if name == "" {
			q.part(is, what+" has no counter")
			return
		}
		want[name] = c.Or(orFalse(c, want[name]), is)
	}
	for check := range packet.NumChecks {
		if name := w.out.Checks[check]; name != "" {
			expect(name, check.String(), c.And(m.Bool(m.program.Checks.Has(check)), slot(uint32(check))))
			expect(name, check.String(), orFalse(c, m.noted[uint32(check)]))
		}
	}
	for i := range m.program.Rules {
		what := "rule " + m.program.Rules[i].Name
		expect(w.out.Rules[i], what, c.Or(slot(m.world.slots[i]), orFalse(c, m.noted[m.world.slots[i]])))
	}
	instead, early := w.early(m, n, slot)
	if w.out.Default != "" {
		expect(w.out.Default, "the default", slot(image.SlotDefault))
	}
	for _, p := range w.out.Proxies {
		for _, name := range []string{p.Proxied, p.Invalid} {
			q.part(c.And(orFalse(c, n.counted[name]), c.Not(m.protected)), "counter "+name+" counts what is not protected")
			delete(n.counted, name)
		}
	}
	proxied := c.And(m.protected, c.Or(n.dropped, n.proxied)) // SYNPROXY's counters count these packets instead
	names := maps.Clone(want)
	maps.Copy(names, n.counted)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		counted, wanted := orFalse(c, n.counted[name]), orFalse(c, want[name])
		q.part(c.And(c.Not(settled), counted, c.Not(wanted), c.Not(orFalse(c, instead[name]))), "counter "+name+" counts it")
		q.part(c.And(c.Not(settled), c.Not(proxied), wanted, c.Not(counted), c.Not(orFalse(c, early[name]))), "counter "+name+" does not count it")
		q.part(c.And(c.Not(settled), orFalse(c, n.again[name])), "counter "+name+" counts it twice")
	}
}

// early returns packets that another counter may count than the policy says. Such a counter belongs to a rule, or to the default, with the same
// verdict at an earlier stage. instead contains, for each counter, the packets that it may count for a later stage. early contains the packets that a
// counter need not count, because another one has counted them.
func (w *netWorld) early(m *meaning, n *netMachine, slot func(uint32) *smt.Term) (instead, early map[string]*smt.Term) {
	instead, early = map[string]*smt.Term{}, map[string]*smt.Term{}
	for j := range m.program.Rules {
		first := &m.program.Rules[j]
		for i := j + 1; i < len(m.program.Rules) && !first.Observe; i++ {
			r := &m.program.Rules[i]
			if r.Observe || r.Verdict != first.Verdict || w.stages[i] >= w.stages[j] {
				continue
			}
			name, of := w.out.Rules[i], w.out.Rules[j]
			decides := slot(m.world.slots[j])
			instead[name] = m.Or(orFalse(m.Context, instead[name]), m.And(decides, m.matches[i]))
			early[of] = m.Or(orFalse(m.Context, early[of]), m.And(decides, orFalse(m.Context, n.counted[name])))
		}
		if of, name := w.out.Rules[j], w.out.Default; !first.Observe && name != "" && first.Verdict == m.program.Default && w.defaultStage < w.stages[j] {
			decides := slot(m.world.slots[j])
			instead[name] = m.Or(orFalse(m.Context, instead[name]), decides)
			early[of] = m.Or(orFalse(m.Context, early[of]), m.And(decides, orFalse(m.Context, n.counted[name])))
		}
	}
	return instead, early
}

// leftOut returns the parts of this policy that are not proved.
func (n *Netfilter) leftOut() []string {
	list := []string{
		"fragments, headers that are not whole, extension headers, options of IPv4, and what is not IP",
		"what the kernel itself drops between the chains: of a packet that comes to all of them the verdict is proved",
		"limits, dynamic sets, connection tracking and the routing table: what is asked of them is proved, not what they answer",
		"which packets are kept out of connection tracking; chains at output and postrouting",
	}
	if len(n.Program.Protections) > 0 {
		list = append(list, "what SYNPROXY does with a packet that its rule passes")
	}
	var names []string
	for _, l := range n.world.out.Left {
		names = append(names, l.Check.String())
	}
	if names != nil {
		list = append(list, "checks that nftables does not make, or not whole: "+strings.Join(names, ", "))
	}
	return list
}
