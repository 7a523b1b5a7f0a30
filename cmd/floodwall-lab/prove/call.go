// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"fmt"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/compile/image"
)

// call models a call of a function of the kernel or of the C part. The function's result is the result of the model: see world.
func (m *machine) call(at int, s *state, in *asm.Instruction) error {
	var args [6]value // from r1 on
	copy(args[1:], s.regs[asm.R1:asm.R6])
	for r := asm.R0; r <= asm.R5; r++ {
		s.regs[r] = value{}
	}
	if in.IsFunctionCall() || in.IsFunctionReference() {
		return m.callOwn(at, s, in.Reference(), args)
	}
	switch asm.BuiltinFunc(in.Constant) {
	case asm.FnMapLookupElem:
		m.lookup(at, s, args)
	case asm.FnJiffies64:
		s.regs[asm.R0] = value{t: m.Var("jiffies", 64)}
		m.to(at+1, s)
	case asm.FnGetPrandomU32:
		m.fault(at, m.And(s.cond, s.drawn), "two random numbers are drawn for a packet") // this model has only one
		s.drawn = m.True()
		s.regs[asm.R0] = value{t: m.ZExt(m.Var("random", 32), 64)}
		m.to(at+1, s)
	default:
		return &errUnknown{at, fmt.Sprintf("unknown function %v of the kernel", in)}
	}
	return nil
}

// lookup models bpf_map_lookup_elem() of an array.
func (m *machine) lookup(at int, s *state, args [6]value) {
	array, key := args[1], args[2]
	if !array.isPointer() || array.of.kind != ofMap || !key.isPointer() || key.of.kind != inStack {
		m.fault(at, s.cond, "a lookup of what is no map, or with a key that is not on the stack")
		return
	}
	index, why := m.read(at, s, key, 0, 4)
	if !index.isNumber() {
		m.fault(at, s.cond, "%s", why)
		return
	}
	k := m.Extract(index.t, 0, 32)
	name := array.of.name
	if m.rules != nil {
		s.regs[asm.R0] = m.rules.lookup(name, k)
		m.to(at+1, s)
		return
	}
	s.regs[asm.R0] = value{t: m.Const(64, 0), of: &region{kind: inElement, name: name, key: k}, null: m.Apply(name+".none", 0, k)}
	if name == image.Counters {
		n := &s.counted
		m.fault(at, m.And(s.cond, n.done, m.Not(m.countedOnce(n))), "what was counted before has not a packet more, and its bytes")
		before := [2]*smt.Term{m.Fresh("packets", 64), m.Fresh("bytes", 64)}
		s.counted = counts{done: m.True(), slot: k, before: before, now: before, null: s.regs[asm.R0].null, extra: m.Or(n.extra, n.done)}
		s.regs[asm.R0].of.key = nil // the model has the state of only one counter at a time
	}
	m.to(at+1, s)
}

// number returns an argument as a number. An argument that is no number is a fault.
func (m *machine) number(at int, s *state, v value) *smt.Term {
	if !v.isNumber() {
		m.fault(at, s.cond, "an argument is no number")
		return nil
	}
	return v.t
}

// ofFrame contains the functions whose first argument is the context.
var ofFrame = map[string]bool{
	image.General: true, image.SampleTraffic: true, image.AnswerInEntry: true, image.ProvedInFrame: true, image.StrayInFrame: true,
	image.KnownInFrame: true, image.GoesOnInFrame: true, image.AgainInFrame: true, image.DecideKnown: true, image.DecideUnknown: true, image.ProtectSegment: true, image.AnswerUsualSYN: true,
	image.AnswerPlainSYN: true, image.ChallengeQuery: true,
}

// parameters are the numbers of arguments of functions, not counting the context.
var parameters = map[string]int{
	image.SampleTraffic: 1, image.AnswerInEntry: 1, image.Class4: 1, image.Class4InFilter: 1, image.Class4OfHost: 1, image.Class6: 2,
	image.ChargeHash: 5, image.FindOpenFlow4: 3, image.FindOpenFlow6: 3, image.Addresses6: 4, image.IsReply: 4, image.ProvedInFrame: 2,
	image.StrayInFrame: 2, image.KnownInFrame: 2, image.GoesOnInFrame: 2, image.AgainInFrame: 2, image.DecideKnown: 3, image.DecideUnknown: 3, image.ProtectSegment: 2, image.AnswerUsualSYN: 2,
	image.AnswerPlainSYN: 2, image.ChallengeQuery: 2, image.IsMember: 4,
}

func (m *machine) callOwn(at int, s *state, name string, args [6]value) error {
	if m.rules != nil {
		return m.rules.call(m, at, s, name, args)
	}
	from := 1
	if ofFrame[name] {
		if args[1].of == nil || args[1].of.kind != inContext || args[1].t != m.Const(64, 0) {
			m.fault(at, s.cond, "%s() without the context", name)
			return nil
		}
		from = 2
	}
	count, known := parameters[name]
	if name != image.General && !known {
		return &errUnknown{at, "a call of " + name + "()"}
	}
	var numbers []*smt.Term
	for _, v := range args[from : from+count] {
		t := m.number(at, s, v)
		if t == nil {
			return nil
		}
		numbers = append(numbers, t)
	}
	switch name {
	case image.General, image.ProtectSegment:
		return m.handOn(at, s, name, numbers)
	case image.AnswerUsualSYN, image.AnswerPlainSYN:
		m.answers(at, s, name, numbers)
		return nil
	case image.ChallengeQuery:
		m.challenges(at, s, name, numbers)
		return nil
	case image.AnswerInEntry:
		m.question(at, s, numbers[0])
		return nil
	case image.SampleTraffic:
		m.claims = append(m.claims, exit{kind: byReturn, cond: s.cond, decision: m.Extract(numbers[0], 0, 32), extra: m.False()})
		m.to(at+1, s)
		return nil
	}
	result, wrong := m.world.result(m, s, name, numbers)
	m.fault(at, m.And(s.cond, wrong), "%s() has other arguments than the packet's", name)
	s.regs[asm.R0] = value{t: result}
	m.to(at+1, s)
	return nil
}

// handOn models a call that passes the frame to a function whose result is the program's result. The next instruction must return that result.
func (m *machine) handOn(at int, s *state, name string, args []*smt.Term) error {
	if next := &m.code.insns[at+1]; !next.OpCode.Class().IsJump() || next.OpCode.JumpOp() != asm.Exit {
		m.fault(at, s.cond, "the result of %s() is not returned", name)
		return nil
	}
	e := exit{kind: byGeneral, cond: s.cond, charged: s.charged, extra: s.counted.done}
	if name == image.ProtectSegment {
		m.fault(at, m.And(s.cond, m.world.otherFamily(m.Context, args[0])), "%s() with another family", name)
		e.kind, e.decision = byProtect, m.Extract(args[1], 0, 32)
	}
	m.exits = append(m.exits, e)
	return nil
}

// synAnswered is the name of the variable that holds if a protection answers a SYN.
const synAnswered = "syn_answered"

// answers models a function that may answer a SYN. If the function does, the frame belongs to the protection; otherwise the function returns 0.
func (m *machine) answers(at int, s *state, name string, args []*smt.Term) {
	m.fault(at, m.And(s.cond, m.world.otherFamily(m.Context, args[0])), "%s() with another family", name)
	answered := m.Var(synAnswered, 0)
	m.exits = append(m.exits, exit{
		kind: byProtect, cond: m.And(s.cond, answered), decision: m.Extract(args[1], 0, 32), charged: s.charged, extra: s.counted.done,
	})
	s.cond = m.And(s.cond, m.Not(answered))
	s.regs[asm.R0] = value{t: m.Const(64, 0)}
	m.to(at+1, s)
}

// challenges models a function that may answer a query. If the function does, it decides and counts the frame; otherwise it returns 0.
func (m *machine) challenges(at int, s *state, name string, args []*smt.Term) {
	m.fault(at, m.And(s.cond, m.world.otherFamily(m.Context, args[0])), "%s() with another family", name)
	decision := m.Extract(args[1], 0, 32)
	yes, ok := m.world.challenged(m.Context, decision)
	if !ok {
		m.fault(at, s.cond, "%s() with the decision of a rule that challenges nobody", name)
		return
	}
	m.exits = append(m.exits, exit{kind: byChallenge, cond: m.And(s.cond, yes), decision: decision, charged: s.charged, extra: s.counted.done})
	s.cond = m.And(s.cond, m.Not(yes))
	s.regs[asm.R0] = value{t: m.Const(64, 0)}
	m.to(at+1, s)
}

// question models answer_in_entry(). There are three cases: the frame must be counted, the question was answered, or the frame is left to general().
func (m *machine) question(at int, s *state, decision *smt.Term) {
	general, done := m.Var("question_for_general", 0), m.Var("question_answered", 0)
	e := exit{kind: byAnswered, cond: m.And(s.cond, done), decision: m.Extract(decision, 0, 32), charged: s.charged, extra: s.counted.done}
	m.exits = append(m.exits, e)
	s.cond = m.And(s.cond, m.Not(done))
	s.regs[asm.R0] = value{t: m.Ite(general, m.Const(64, 2), m.Const(64, 0))}
	m.to(at+1, s)
}
