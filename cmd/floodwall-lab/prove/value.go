// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
)

// regionKind is the kind of memory that a pointer points to.
type regionKind uint8

const (
	inContext regionKind = iota // struct xdp_md
	inFrame                     // the frame; offsets count from its first byte
	inStack                     // offsets count from the frame pointer
	inArray                     // the single value of an array, by the name of its map
	inElement                   // the element that a lookup found
	ofMap                       // a map itself
	inPacket                    // struct packet, the argument of decide()
)

// region is the memory that a pointer points to.
type region struct {
	kind regionKind
	name string    // name of the map
	key  *smt.Term // key of an element, 32 bits
}

func (r *region) is(o *region) bool {
	return r == o || r != nil && o != nil && r.kind == o.kind && r.name == o.name && r.key == o.key
}

// value is the content of a register, or of a slot of the stack. The zero value is unknown, and must not be read.
type value struct {
	t    *smt.Term // a 64-bit number, or the offset in a region; nil: not written
	of   *region
	null *smt.Term // the pointer is 0 where this formula holds; nil: never 0
}

func (v value) isPointer() bool { return v.of != nil }
func (v value) isNumber() bool  { return v.t != nil && v.of == nil }

// slot is a number or a pointer on the stack.
type slot struct {
	size int
	value
}

// counts is the state of counting: the slot of the counter that was looked up last, the counter's value before, and its value now.
type counts struct {
	done        *smt.Term // a counter was looked up
	slot        *smt.Term // 32 bits
	before, now [2]*smt.Term
	null        *smt.Term // the counter does not exist
	extra       *smt.Term // another counter was increased before
}

func noCounts(c *smt.Context) counts {
	zero := c.Const(64, 0)
	return counts{done: c.False(), slot: c.Const(32, 0), before: [2]*smt.Term{zero, zero}, now: [2]*smt.Term{zero, zero}, null: c.False(), extra: c.False()}
}

// state is the abstract state at an instruction. It covers all paths that lead to the instruction.
type state struct {
	cond    *smt.Term // the frames that reach this place
	regs    [11]value
	stack   map[int]slot
	least   int // the smallest possible length of the frame in bytes
	counted counts
	drawn   *smt.Term         // a random number was drawn
	charged map[int]*smt.Term // by limit: the limit was charged
}

func (s *state) clone() *state {
	out := *s
	out.stack = make(map[int]slot, len(s.stack))
	for at, v := range s.stack {
		out.stack[at] = v
	}
	out.charged = make(map[int]*smt.Term, len(s.charged))
	for limit, t := range s.charged {
		out.charged[limit] = t
	}
	return &out
}

// join merges the states of two paths. Only one of the paths is taken for a frame.
func join(c *smt.Context, a, b *state) *state {
	out := a.clone()
	out.cond = c.Or(a.cond, b.cond)
	for i := range out.regs {
		out.regs[i] = joinValue(c, b.cond, a.regs[i], b.regs[i])
	}
	for at, v := range a.stack {
		other, ok := b.stack[at]
		joined := joinValue(c, b.cond, v.value, other.value)
		if !ok || other.size != v.size || joined.t == nil {
			delete(out.stack, at)
			continue
		}
		out.stack[at] = slot{v.size, joined}
	}
	out.least = min(a.least, b.least)
	out.drawn = c.Ite(b.cond, b.drawn, a.drawn)
	out.counted = joinCounts(c, b.cond, a.counted, b.counted)
	for limit, t := range b.charged {
		other := out.charged[limit]
		if other == nil {
			other = c.False()
		}
		out.charged[limit] = c.Ite(b.cond, t, other)
	}
	for limit, t := range a.charged {
		if b.charged[limit] == nil {
			out.charged[limit] = c.And(c.Not(b.cond), t)
		}
	}
	return out
}

// joinValue returns b where the condition holds, and a elsewhere. The result is unknown if the two cannot be merged.
func joinValue(c *smt.Context, cond *smt.Term, a, b value) value {
	if a.t == nil || b.t == nil {
		return value{}
	}
	if (a.of == nil) != (b.of == nil) || a.of != nil && !a.of.is(b.of) {
		return value{}
	}
	out := value{t: c.Ite(cond, b.t, a.t), of: a.of}
	if a.null != nil || b.null != nil {
		out.null = c.Ite(cond, orFalse(c, b.null), orFalse(c, a.null))
	}
	return out
}

func orFalse(c *smt.Context, t *smt.Term) *smt.Term {
	if t == nil {
		return c.False()
	}
	return t
}

func joinCounts(c *smt.Context, cond *smt.Term, a, b counts) counts {
	out := counts{
		done: c.Ite(cond, b.done, a.done), slot: c.Ite(cond, b.slot, a.slot), null: c.Ite(cond, b.null, a.null), extra: c.Ite(cond, b.extra, a.extra),
	}
	for i := range out.before {
		out.before[i], out.now[i] = c.Ite(cond, b.before[i], a.before[i]), c.Ite(cond, b.now[i], a.now[i])
	}
	return out
}
