// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"fmt"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
)

// exitKind is the way in which the program ends.
type exitKind uint8

const (
	byReturn    exitKind = iota // it returns an action
	byGeneral                   // it calls general() for the frame
	byProtect                   // it passes the frame and a decision to the protection of a service
	byChallenge                 // it answers the frame with a challenge; the exit has a decision
	byAnswered                  // it answered a question; the frame is not counted
)

// exit is an end of the program. It applies to the frames for which cond holds.
type exit struct {
	kind     exitKind
	cond     *smt.Term
	action   *smt.Term // 32 bits; only for byReturn
	decision *smt.Term // 32 bits: the decision that was counted or passed to a function
	extra    *smt.Term // holds if another slot was counted in addition to that of the decision
	charged  map[int]*smt.Term
}

// fault is an operation that no program may perform. It applies to the frames for which cond holds. Either the verifier refuses the operation, or
// this model does not know it.
type fault struct {
	cond *smt.Term
	at   int
	why  string
}

// machine executes a function for all frames at once. Each instruction has one state: where several paths meet, their states are merged.
type machine struct {
	*smt.Context
	frame  *frame
	world  *world
	code   *code
	states map[int]*state
	exits  []exit
	claims []exit // the decisions that functions get as arguments, for questions and samples
	faults []fault

	visited map[int]bool // the instructions that at least one frame reaches

	rules    *rulesRun                 // the further state of decide(); nil: the code is the entry
	feasible func(cond *smt.Term) bool // reports whether any frame reaches a place after a comparison of a number; nil: every place counts as reached
}

// errUnknown is the error for code that the model does not support.
type errUnknown struct {
	at  int
	why string
}

func (e *errUnknown) Error() string { return fmt.Sprintf("instruction %d: %s", e.at, e.why) }

// run executes the function.
func (m *machine) run() error {
	start := &state{cond: m.True(), stack: map[int]slot{}, counted: noCounts(m.Context), drawn: m.False(), charged: map[int]*smt.Term{}}
	zero := m.Const(64, 0)
	start.regs[asm.R1] = value{t: zero, of: &region{kind: inContext}}
	start.regs[asm.RFP] = value{t: zero, of: &region{kind: inStack}}
	if m.rules != nil {
		m.rules.ready(start)
	}
	m.states, m.visited = map[int]*state{0: start}, map[int]bool{}
	for _, at := range m.code.order {
		s := m.states[at]
		delete(m.states, at)
		if s == nil || s.cond.IsFalse() {
			continue
		}
		m.visited[at] = true
		if err := m.step(at, s); err != nil {
			return err
		}
	}
	return nil
}

// to continues the execution at an instruction.
func (m *machine) to(at int, s *state) {
	if s.cond.IsFalse() {
		return
	}
	if other := m.states[at]; other != nil {
		s = join(m.Context, other, s)
	}
	m.states[at] = s
}

// fault ends a path, and records the reason for the frames for which cond holds.
func (m *machine) fault(at int, cond *smt.Term, why string, args ...any) {
	if !cond.IsFalse() {
		m.faults = append(m.faults, fault{cond, at, fmt.Sprintf(why, args...)})
	}
}

func (m *machine) step(at int, s *state) error {
	in := &m.code.insns[at]
	switch class := in.OpCode.Class(); class {
	case asm.ALUClass, asm.ALU64Class:
		return m.alu(at, s, in)
	case asm.JumpClass, asm.Jump32Class:
		return m.jump(at, s, in)
	case asm.LdClass:
		return m.loadConstant(at, s, in)
	case asm.LdXClass:
		m.load(at, s, in)
		return nil
	case asm.StClass, asm.StXClass:
		m.store(at, s, in)
		return nil
	}
	return &errUnknown{at, fmt.Sprintf("unknown instruction %v", in)}
}

// loadConstant loads a 64-bit number or an address.
func (m *machine) loadConstant(at int, s *state, in *asm.Instruction) error {
	if !in.OpCode.IsDWordLoad() {
		return &errUnknown{at, fmt.Sprintf("unknown load %v", in)}
	}
	v := value{t: m.Const(64, uint64(in.Constant))}
	switch in.Src {
	case asm.PseudoMapFD:
		v = value{t: m.Const(64, 0), of: &region{kind: ofMap, name: in.Reference()}}
	case asm.PseudoMapValue:
		v = value{t: m.Const(64, uint64(in.Constant)>>32), of: &region{kind: inArray, name: in.Reference()}}
	case 0:
	default:
		return &errUnknown{at, fmt.Sprintf("unknown kind of constant %v", in)}
	}
	s.regs[in.Dst] = v
	m.to(at+1, s)
	return nil
}

// operand returns the second operand of an instruction.
func (m *machine) operand(s *state, in *asm.Instruction) value {
	if in.OpCode.Source() == asm.RegSource {
		return s.regs[in.Src]
	}
	return value{t: m.Const(64, uint64(in.Constant))}
}

var aluOps = map[asm.ALUOp]func(c *smt.Context, a, b *smt.Term) *smt.Term{
	asm.Add: (*smt.Context).Add, asm.Sub: (*smt.Context).Sub, asm.Mul: (*smt.Context).Mul, asm.And: (*smt.Context).BitAnd,
	asm.Or: (*smt.Context).BitOr, asm.Xor: (*smt.Context).BitXor, asm.LSh: (*smt.Context).Shl, asm.RSh: (*smt.Context).Lshr, asm.ArSh: (*smt.Context).Ashr,
	asm.Mov: func(_ *smt.Context, _, b *smt.Term) *smt.Term { return b },
}

func (m *machine) alu(at int, s *state, in *asm.Instruction) error {
	op := in.OpCode.ALUOp()
	dst := s.regs[in.Dst]
	if op == asm.Swap {
		return m.swap(at, s, in)
	}
	src := m.operand(s, in)
	wide := in.OpCode.Class() == asm.ALU64Class
	if in.Offset != 0 {
		return &errUnknown{at, fmt.Sprintf("unknown offset of %v", in)}
	}
	if src.t == nil || dst.t == nil && op != asm.Mov {
		m.fault(at, s.cond, "a register is read that was not written")
		return nil
	}
	if op == asm.Mov && wide {
		s.regs[in.Dst] = src
		m.to(at+1, s)
		return nil
	}
	if dst.isPointer() && op != asm.Mov || src.isPointer() {
		v, ok := m.pointerSum(op, wide, dst, src)
		if !ok {
			m.fault(at, s.cond, "arithmetic with a pointer")
			return nil
		}
		s.regs[in.Dst] = v
		m.to(at+1, s)
		return nil
	}
	do := aluOps[op]
	if op == asm.Neg {
		do = func(c *smt.Context, a, _ *smt.Term) *smt.Term { return c.Sub(c.Const(a.Width, 0), a) }
	}
	if do == nil {
		return &errUnknown{at, fmt.Sprintf("unknown operation %v", in)}
	}
	a, b := dst.t, src.t
	if op == asm.Mov {
		a = b
	}
	if !wide {
		a, b = m.Extract(a, 0, 32), m.Extract(b, 0, 32)
	}
	if op == asm.LSh || op == asm.RSh || op == asm.ArSh {
		b = m.BitAnd(b, m.Const(b.Width, uint64(a.Width-1)))
	}
	t := do(m.Context, a, b)
	if op == asm.Mul && a.Ones() <= 0xff && m.rules == nil {
		t = m.multiple(a, b, t)
	}
	if m.rules != nil {
		t = m.rules.simplify(s, op, a, b, t)
	}
	s.regs[in.Dst] = value{t: m.ZExt(t, 64)}
	m.to(at+1, s)
	return nil
}

// multiple returns a byte times a constant, as a choice over all values of the byte. The code uses such a product as the offset of an entry in a
// table.
func (m *machine) multiple(a, b, t *smt.Term) *smt.Term {
	low := m.Extract(a, 0, 8)
	factor, ok := b.IsConst()
	if !ok || low.Op != smt.OpVar {
		return t
	}
	values := make([]uint64, 256)
	for i := range values {
		values[i] = uint64(i) * factor
	}
	return m.Choice(low, values, t.Width)
}

// pointerSum moves a pointer, or computes the distance between two pointers.
func (m *machine) pointerSum(op asm.ALUOp, wide bool, a, b value) (value, bool) {
	if a.null != nil || b.null != nil || !wide {
		return value{}, false
	}
	switch {
	case op == asm.Add && a.isPointer() && b.isNumber():
		return value{t: m.Add(a.t, b.t), of: a.of}, true
	case op == asm.Add && b.isPointer() && a.isNumber():
		return value{t: m.Add(a.t, b.t), of: b.of}, true
	case op == asm.Sub && a.isPointer() && b.isNumber():
		return value{t: m.Sub(a.t, b.t), of: a.of}, true
	case op == asm.Sub && a.isPointer() && b.isPointer() && a.of.is(b.of):
		return value{t: m.Sub(a.t, b.t)}, true
	}
	return value{}, false
}

// swap converts a value to network byte order, or to the order of a little-endian machine, which changes nothing.
func (m *machine) swap(at int, s *state, in *asm.Instruction) error {
	dst := s.regs[in.Dst]
	if !dst.isNumber() {
		m.fault(at, s.cond, "the byte order of what is no number")
		return nil
	}
	t := m.Extract(dst.t, 0, uint8(in.Constant))
	if in.OpCode.Class() == asm.ALU64Class || in.OpCode.Endianness() == asm.BE {
		t = m.Swap(t)
	}
	s.regs[in.Dst] = value{t: m.ZExt(t, 64)}
	m.to(at+1, s)
	return nil
}

func (m *machine) jump(at int, s *state, in *asm.Instruction) error {
	switch in.OpCode.JumpOp() {
	case asm.Call:
		return m.call(at, s, in)
	case asm.Exit:
		m.leave(at, s)
		return nil
	case asm.Ja:
		m.to(m.code.target[at], s)
		return nil
	}
	a, b := s.regs[in.Dst], m.operand(s, in)
	if a.t == nil || b.t == nil {
		m.fault(at, s.cond, "a register is compared that was not written")
		return nil
	}
	var cond *smt.Term
	wide := in.OpCode.Class() == asm.JumpClass
	switch {
	case a.isNumber() && b.isNumber():
		x, y := a.t, b.t
		if !wide {
			x, y = m.Extract(x, 0, 32), m.Extract(y, 0, 32)
		}
		cond = m.holds(in.OpCode.JumpOp(), x, y)
	case a.isPointer() && b.isPointer() && a.of.is(b.of) && wide && a.of.kind == inFrame:
		if op, ok := signed[in.OpCode.JumpOp()]; ok {
			cond = m.holds(op, a.t, b.t)
		}
	case a.isPointer() && b.isNumber() && wide:
		cond = m.isNull(in.OpCode.JumpOp(), a, b.t)
	}
	if cond == nil {
		m.fault(at, s.cond, "a comparison of pointers")
		return nil
	}
	other := s.clone()
	s.cond, other.cond = m.And(s.cond, cond), m.And(other.cond, m.Not(cond))
	m.bounded(in.OpCode.JumpOp(), a, b, s, other)
	if a.isPointer() && b.isNumber() { // on the path where the pointer is not null, the value is marked as not null
		m.notNull(in, a, s, other)
	}
	if m.feasible == nil || in.OpCode.JumpOp() != asm.JEq || m.feasible(s.cond) {
		m.to(m.code.target[at], s)
	}
	m.to(at+1, other)
	return nil
}

// holds returns a formula that holds if a jump is taken.
func (m *machine) holds(op asm.JumpOp, a, b *smt.Term) *smt.Term {
	switch op {
	case asm.JEq:
		return m.Eq(a, b)
	case asm.JNE:
		return m.Not(m.Eq(a, b))
	case asm.JGT:
		return m.ULT(b, a)
	case asm.JGE:
		return m.ULE(b, a)
	case asm.JLT:
		return m.ULT(a, b)
	case asm.JLE:
		return m.ULE(a, b)
	case asm.JSGT:
		return m.SLT(b, a)
	case asm.JSGE:
		return m.SLE(b, a)
	case asm.JSLT:
		return m.SLT(a, b)
	case asm.JSLE:
		return m.SLE(a, b)
	case asm.JSet:
		return m.Not(m.Eq(m.BitAnd(a, b), m.Const(a.Width, 0)))
	}
	return nil
}

// signed are the comparisons of positions in the frame. A position may be before the begin of the frame.
var signed = map[asm.JumpOp]asm.JumpOp{
	asm.JGT: asm.JSGT, asm.JGE: asm.JSGE, asm.JLT: asm.JSLT, asm.JLE: asm.JSLE, asm.JEq: asm.JEq, asm.JNE: asm.JNE,
}

// isNull compares a pointer with 0.
func (m *machine) isNull(op asm.JumpOp, a value, b *smt.Term) *smt.Term {
	if v, ok := b.IsConst(); !ok || v != 0 {
		return nil
	}
	switch op {
	case asm.JEq:
		return orFalse(m.Context, a.null)
	case asm.JNE:
		return m.Not(orFalse(m.Context, a.null))
	}
	return nil
}

func (m *machine) notNull(in *asm.Instruction, a value, taken, other *state) {
	known := value{t: a.t, of: a.of}
	if in.OpCode.JumpOp() == asm.JEq {
		other.regs[in.Dst] = known
	} else {
		taken.regs[in.Dst] = known
	}
}

// bounded records the smallest possible length of the frame, if a comparison shows that a position is not after the frame's end.
func (m *machine) bounded(op asm.JumpOp, a, b value, taken, other *state) {
	if !a.isPointer() || !b.isPointer() || b.t != m.frame.length {
		return
	}
	at, ok := a.t.IsConst()
	if !ok || int64(at) < 0 || int64(at) > 1<<16 {
		return
	}
	switch op {
	case asm.JGT:
		other.least = max(other.least, int(at))
	case asm.JLE:
		taken.least = max(taken.least, int(at))
	}
}

// leave ends the program with the value in r0.
func (m *machine) leave(at int, s *state) {
	if m.rules != nil {
		m.rules.leave(m, at, s)
		return
	}
	r0 := s.regs[asm.R0]
	if !r0.isNumber() {
		m.fault(at, s.cond, "no number is returned")
		return
	}
	n := &s.counted
	wrong := m.Not(m.And(n.done, m.countedOnce(n)))
	m.fault(at, m.And(s.cond, wrong), "what is returned was not counted, once, with its bytes")
	m.exits = append(m.exits, exit{
		kind: byReturn, cond: s.cond, action: m.Extract(r0.t, 0, 32), decision: n.slot, extra: n.extra, charged: s.charged,
	})
}

// countedOnce holds if the last counter was increased by one packet, and by the bytes of the frame.
func (m *machine) countedOnce(n *counts) *smt.Term {
	more := m.And(m.Eq(n.now[0], m.Add(n.before[0], m.Const(64, 1))), m.Eq(n.now[1], m.Add(n.before[1], m.frame.length)))
	return m.Or(n.null, more)
}
