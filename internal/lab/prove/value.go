package prove

import (
	"github.com/floodwall/floodwall/internal/lab/prove/smt"
)

// regionKind is what a pointer points to.
type regionKind uint8

const (
	inContext regionKind = iota // struct xdp_md
	inFrame                     // the frame; offsets count from its first byte
	inStack                     // offsets count from the frame pointer
	inArray                     // the one value of an array, by the name of its map
	inElement                   // what a lookup has found
	ofMap                       // a map itself
	inPacket                    // struct packet, which decide() gets
)

// region is memory.
type region struct {
	kind regionKind
	name string    // of the map
	key  *smt.Term // of an element, 32 bits
}

func (r *region) is(o *region) bool {
	return r == o || r != nil && o != nil && r.kind == o.kind && r.name == o.name && r.key == o.key
}

// value is the content of a register, or of a slot of the stack. The zero value is not known: what is read must have been written.
type value struct {
	t    *smt.Term // a number of 64 bits, or with a region the offset in it; nil: not written
	of   *region
	null *smt.Term // where this holds, the pointer is 0 instead; nil: never
}

func (v value) isPointer() bool { return v.of != nil }
func (v value) isNumber() bool  { return v.t != nil && v.of == nil }

// slot is a number or a pointer on the stack.
type slot struct {
	size int
	value
}

// counts is what the program has counted: the slot of the last counter that it has looked up, and what that was and is.
type counts struct {
	done        *smt.Term // whether one was looked up
	slot        *smt.Term // 32 bits
	before, now [2]*smt.Term
	null        *smt.Term // there is no such counter
	extra       *smt.Term // whether another was counted before it
}

func noCounts(c *smt.Context) counts {
	zero := c.Const(64, 0)
	return counts{done: c.False(), slot: c.Const(32, 0), before: [2]*smt.Term{zero, zero}, now: [2]*smt.Term{zero, zero}, null: c.False(), extra: c.False()}
}

// state is what is known at an instruction, for all ways that lead there together.
type state struct {
	cond    *smt.Term // which frames come here
	regs    [11]value
	stack   map[int]slot
	least   int // the frame has so many bytes at least
	counted counts
	drawn   *smt.Term         // whether a random number was drawn
	charged map[int]*smt.Term // of limits: whether they were charged
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

// join is the state for the ways of two states, which exclude each other.
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

// joinValue is b where the condition holds, else a. What cannot be both is not known.
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
