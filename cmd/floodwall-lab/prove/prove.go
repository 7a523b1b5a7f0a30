// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/compile/xdp/entry"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// Subject is a compiled program, ready for a proof.
type Subject struct {
	Program *ir.Program
	world   *world
	entry   asm.Instructions
	rules   asm.Instructions // of decide()
	loaded  bool             // the code and the content of maps are read back from the kernel

	elements map[string]int // size of a value in memory, by map
}

// NewSubject returns a compiled program as the subject of a proof. It proves the program's tables of addresses.
func NewSubject(p *ir.Program, x *xdp.Program) (*Subject, error) { return newSubject(p, x, x.Fill) }

func newSubject(p *ir.Program, x *xdp.Program, fill func(map[string][]byte) error) (*Subject, error) {
	spec, err := x.Spec()
	if err != nil {
		return nil, err
	}
	insns := spec.Programs[image.Program].Instructions
	start, end, err := image.FunctionBounds(insns, image.Program)
	if err != nil {
		return nil, err
	}
	rules, behind, err := image.FunctionBounds(insns, decideName)
	if err != nil {
		return nil, err
	}
	memory, elements := map[string][]byte{}, map[string]int{}
	for name, shape := range x.Shapes {
		elements[name] = image.Shape{ValueSize: shape.ValueSize, Entries: 1}.Size()
		memory[name] = make([]byte, shape.Size())
	}
	if err := fill(memory); err != nil {
		return nil, err
	}
	t := &tables{memory, x.Constants}
	found, err := proveTables(p, t)
	if err != nil {
		return nil, err
	}
	w := &world{
		program: p, content: map[string][]byte{}, dynamic: x.Dynamic, classes: found, tables: t, marksAt: entry.MarksOffset,
		offsets: image.ConstantOffsets(image.XDP, "limit_keys", "limit_mix"),
	}
	for _, name := range frozen {
		if memory[name] != nil {
			w.content[name] = memory[name]
		}
	}
	for _, v := range spec.Variables { // constants of the C part, which nothing writes
		if end := int(v.Offset) + len(v.Value); end > len(w.content[image.Constants]) {
			w.content[image.Constants] = append(w.content[image.Constants], make([]byte, end-len(w.content[image.Constants]))...)
		}
		copy(w.content[image.Constants][v.Offset:], v.Value)
	}
	for b := memory[image.LimitInfos]; len(b) >= image.LimitInfoSize; b = b[image.LimitInfoSize:] {
		info, err := image.ReadLimitInfo(b)
		if err != nil {
			return nil, err
		}
		w.limits = append(w.limits, info)
	}
	if err := proveLimits(p, w.limits); err != nil {
		return nil, err
	}
	w.limits = w.limits[:len(p.Limits)] // the entry does not judge bans
	for i := range p.Rules {
		w.slots = append(w.slots, uint32(image.SlotRules+i))
	}
	return &Subject{Program: p, world: w, entry: insns[start:end], rules: insns[rules:behind], elements: elements}, nil
}

// frozen are the maps that the entry reads and whose content never changes while the program runs.
var frozen = []string{image.IDMasks, image.Listed, image.Reflectors, image.Filter4, image.Filter6, image.HostFilter4}

// Result is the result of the proof of one part: of a kind of frames, or of all other frames.
type Result struct {
	Kind     string        `json:"kind"`
	Answer   smt.Answer    `json:"answer"`
	Why      string        `json:"why,omitempty"`   // why there is no answer, or a description of the difference
	Frame    []byte        `json:"frame,omitempty"` // a frame that shows a difference
	State    []string      `json:"state,omitempty"` // the state, besides the frame, with which the difference appears
	Time     time.Duration `json:"time"`
	CPU      time.Duration `json:"cpu"`                // CPU time of z3
	Replayed string        `json:"replayed,omitempty"` // the results of the kernel and of Eval for the frame
	Decided  bool          `json:"decided"`            // the entry decides at least one frame of the kind
	Terms    int           `json:"terms"`              // number of terms of the formula
}

// Kind proves that the entry decides frames of a kind as the program requires.
func (s *Subject) Kind(ctx context.Context, k kind, l smt.Limits) (r Result) {
	start := time.Now()
	r.Kind = k.String()
	defer func() { r.Time = time.Since(start) }()
	q, err := s.query(k, s.entry)
	if err != nil {
		r.Why = err.Error()
		return r
	}
	r.Decided = !q.decided.IsFalse()
	answer, model, err := q.solve(ctx, l)
	r.answered(q.c, answer, err, func() { r.Frame, r.Why, r.State = q.frameOf(model), q.explain(model), q.stateOf(model) })
	return r
}

// answered records the answer of z3 to a formula. It calls told if there is a model.
func (r *Result) answered(c *smt.Context, answer smt.Answer, err error, told func()) {
	r.Answer, r.CPU, r.Terms = answer, c.Used, c.Terms()
	switch {
	case err != nil:
		r.Why = err.Error()
	case answer == smt.Satisfiable:
		told()
	case answer == smt.Unknown:
		r.Why = "z3 has not found an answer within its time and memory"
	}
}

// solve asks z3. If the formula depends on products, it first tries a source of each class.
func (q *query) solve(ctx context.Context, l smt.Limits) (smt.Answer, *smt.Model, error) {
	return q.c.Solve(ctx, l, q.differ, q.sources()...)
}

// sources returns formulas that fix values, so that hashes become numbers. They are needed because z3 cannot find values for the hashes. Some
// formulas fix the source to an address of each class, and to an address of class 0 that passes the filters. Others fix identifiers, and both
// addresses of IPv6 together with the secrets of replies.
func (q *query) sources() (list []*smt.Term) {
	const most = 16
	w, v6 := q.machine.world, q.meaning.kind.v6
	list = append(w.identifiers(), w.flowsOf6(q.c)...)
	fix := func(a wide, class int) {
		hi, lo := q.meaning.halves(q.meaning.source)
		if !v6 {
			a.lo |= 0xffff_0000_0000
		}
		list = append(list, q.c.And(
			q.c.Eq(hi, q.c.Const(64, a.hi)), q.c.Eq(lo, q.c.Const(64, a.lo)), q.c.Eq(q.c.Var("class", 32), q.c.Const(32, uint64(class))),
		))
	}
	for i, class := range w.mine() {
		if a, ok := w.classes.sample[flag(v6)][class]; ok && len(list) < most {
			fix(a, i)
		}
		if class == 0 {
			for _, a := range w.classes.passes[flag(v6)] {
				fix(a, i)
			}
		}
	}
	return list
}

// query is the formula of the frames of a kind for which the code behaves differently from the program.
type query struct {
	c       *smt.Context
	frame   *frame
	machine *machine
	meaning *meaning
	differ  *smt.Term
	decided *smt.Term
	handed  *smt.Term // only XDP: the decided frames for which a function in C decides the rest, which is not proved
	parts   []difference
	claimed *smt.Term            // only netfilter: the packets of the claim
	counted map[string]*smt.Term // only netfilter: the packets that each counter counts
	visited map[netPlace]bool    // only netfilter: the rules that packets reach
}

// difference contains the frames for which a forbidden condition holds.
type difference struct {
	cond *smt.Term
	why  string
}

func (s *Subject) query(k kind, code asm.Instructions) (*query, error) {
	resolved, err := newCode(code)
	if err != nil {
		return nil, err
	}
	c := smt.New()
	f := newFrame(c, k.known(c))
	w := *s.world
	d := decode(c, f, k)
	w.decoded = d
	meaning := mean(d, &w)
	m := &machine{Context: c, frame: f, world: &w, code: resolved}
	if err := m.run(); err != nil {
		return nil, err
	}
	q := &query{c: c, frame: f, machine: m, meaning: meaning, decided: c.False(), handed: c.False()}
	for _, e := range m.exits {
		q.exit(e)
	}
	for _, e := range m.claims {
		q.claim(e)
	}
	for _, x := range m.faults {
		q.part(x.cond, fmt.Sprintf("instruction %d: %s", x.at, x.why))
	}
	smallest := c.ULE(c.Const(64, 14), f.length)
	q.differ = c.And(q.union(), w.promises(c), smallest)
	return q, nil
}

func (q *query) part(cond *smt.Term, why string) {
	if !cond.IsFalse() {
		q.parts = append(q.parts, difference{cond, why})
	}
}

// exit adds the frames for which an exit of the program is wrong.
func (q *query) exit(e exit) {
	c, m := q.c, q.meaning
	if e.kind == byGeneral {
		for limit, charged := range e.charged {
			q.part(c.And(e.cond, charged), fmt.Sprintf("general() charges limit %d again", limit))
		}
		q.part(c.And(e.cond, e.extra), "what is left to general() was counted")
		return
	}
	q.decided = c.Or(q.decided, e.cond)
	if e.kind != byReturn {
		q.handed = c.Or(q.handed, e.cond)
	}
	q.part(c.And(e.cond, c.Not(m.usual)), "a fragment is decided")
	q.part(c.And(e.cond, m.observed), "a check or a rule that only counts is not left to general()")
	decision := e.decision
	switch e.kind {
	case byReturn:
		pass, drop := c.Eq(e.action, c.Const(32, 2)), c.Eq(e.action, c.Const(32, 1))
		q.part(c.And(e.cond, c.Not(c.Or(pass, drop))), "the action is neither pass nor drop")
		verdict := c.Ite(drop, c.Const(8, uint64(ir.Drop)), c.Const(8, uint64(ir.Pass)))
		decision = c.Concat(c.Extract(decision, 0, 24), verdict)
		q.part(c.And(e.cond, e.extra, c.Not(m.protected)), "more than the reason is counted")
	case byChallenge:
		q.part(c.And(e.cond, e.extra), "what is challenged was counted before")
	case byProtect:
		q.part(c.And(e.cond, c.Not(m.protected)), "a packet without a protection is left to it")
		decision = c.Concat(c.Extract(decision, 8, 24), c.Const(8, uint64(ir.Pass)))
	}
	q.same(e, decision)
	for limit := range m.program.Limits {
		entry, means := e.charged[limit], m.charged[limit]
		q.part(c.And(e.cond, c.Not(c.Eq(orFalse(c, entry), orFalse(c, means)))), fmt.Sprintf("limit %d is charged by one only", limit))
	}
}

// same adds the frames whose decision differs from the program's. A protection may drop frames that it could pass, so such frames are not added.
func (q *query) same(e exit, decision *smt.Term) {
	c, m := q.c, q.meaning
	slot := c.Eq(c.Extract(decision, 8, 24), c.Extract(m.decision, 8, 24))
	verdict := c.Eq(c.Extract(decision, 0, 8), c.Extract(m.decision, 0, 8))
	protected := c.And(m.protected, c.ULE(c.Extract(decision, 0, 8), c.Const(8, uint64(ir.Drop))))
	q.part(c.And(e.cond, c.Not(slot)), "the reason differs")
	q.part(c.And(e.cond, c.Not(c.Or(verdict, protected))), "the verdict differs")
}

func (q *query) claim(e exit) { q.same(e, e.decision) }

// frameOf returns the frame of a model. It omits the bytes after the IP packet, if the difference exists without them.
func (q *query) frameOf(m *smt.Model) []byte {
	length := int(m.Eval(q.frame.length))
	if q.meaning != nil {
		short := q.meaning.kind.ip() + int(m.Eval(q.meaning.total))
		shorter := smt.Model{Vars: maps.Clone(m.Vars), Apply: m.Apply}
		shorter.Vars["length"] = uint64(short)
		if short < length && shorter.Eval(q.differ) == 1 {
			length = short
		}
	}
	out := make([]byte, length)
	for at := range out {
		if q.frame.known[at] != nil || q.frame.read[at] {
			out[at] = byte(m.Eval(q.frame.byte(at)))
		}
	}
	return out
}

// explain describes the difference in a model.
func (q *query) explain(m *smt.Model) string {
	for _, p := range q.parts {
		if m.Eval(p.cond) == 1 {
			return p.why
		}
	}
	return "the model contradicts itself"
}

// stateOf returns the state of a model besides the frame, as texts.
func (q *query) stateOf(m *smt.Model) (list []string) {
	for name, v := range m.Vars {
		if v != 0 && !strings.HasPrefix(name, "byte") && !strings.HasPrefix(name, "low") && !strings.Contains(name, "!") && name != "length" {
			list = append(list, fmt.Sprintf("%s=%d", name, v))
		}
	}
	slices.Sort(list)
	return list
}
