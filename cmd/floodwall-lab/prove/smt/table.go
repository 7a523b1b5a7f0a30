// SPDX-License-Identifier: Apache-2.0

package smt

import "math/bits"

// Table returns the values of a term for each value of a variable from 0 to n-1. ok is false if the term has another part that is not constant.
func (t *Term) Table(variable *Term, n int) (values []uint64, ok bool) {
	known := map[*Term][]uint64{}
	var of func(t *Term) []uint64
	of = func(t *Term) []uint64 {
		if out, done := known[t]; done {
			return out
		}
		out := make([]uint64, n)
		known[t] = out
		switch {
		case t == variable:
			for i := range out {
				out[i] = uint64(i) & mask(t.Width)
			}
			return out
		case t.Op == OpConst:
			for i := range out {
				out[i] = t.Value
			}
			return out
		case t.Op == OpVar || t.Op == OpApply || t.Width == 0 || len(t.Args) == 0 || t.Op == OpIte:
			known[t] = nil
			return nil
		}
		a := of(t.Args[0])
		b := a
		if len(t.Args) > 1 {
			b = of(t.Args[1])
		}
		if a == nil || b == nil {
			known[t] = nil
			return nil
		}
		for i := range out {
			switch t.Op {
			case OpExtract:
				out[i] = a[i] >> t.Value & mask(t.Width)
			case OpConcat:
				out[i] = a[i]<<t.Args[1].Width | b[i]
			default:
				out[i] = operate(t.Op, t.Width, a[i], b[i]) & mask(t.Width)
			}
		}
		return out
	}
	values = of(t)
	return values, values != nil
}

// Part returns the part that determines a term: the outermost choice, or otherwise the variable. It returns nil for a constant. ok is false if the
// term depends on an application of a function, a formula, or two variables.
func (t *Term) Part() (part *Term, ok bool) {
	seen := map[*Term]bool{}
	var choice, variable *Term
	ok = true
	var visit func(t *Term)
	visit = func(t *Term) {
		if seen[t] || choice != nil {
			return
		}
		seen[t] = true
		switch t.Op {
		case OpConst:
		case OpIte:
			choice = t
		case OpVar:
			ok = ok && variable == nil
			variable = t
		case OpApply:
			ok = false
		default:
			ok = ok && t.Width > 0
			for _, a := range t.Args {
				visit(a)
			}
		}
	}
	visit(t)
	if choice != nil {
		return choice, true
	}
	return variable, ok
}

// Replace replaces a part of a term by another term.
func (c *Context) Replace(t, part, by *Term) *Term {
	known := map[*Term]*Term{part: by}
	var of func(t *Term) *Term
	of = func(t *Term) *Term {
		if out := known[t]; out != nil {
			return out
		}
		if len(t.Args) == 0 {
			return t
		}
		args := make([]*Term, len(t.Args))
		same := true
		for i, a := range t.Args {
			args[i] = of(a)
			same = same && args[i] == a
		}
		out := t
		if !same {
			out = c.again(t, args)
		}
		known[t] = out
		return out
	}
	return of(t)
}

// again makes a term of the same kind with other arguments.
func (c *Context) again(t *Term, args []*Term) *Term {
	switch t.Op {
	case OpApply:
		return c.Apply(t.Name, t.Width, args...)
	case OpNot:
		return c.Not(args[0])
	case OpAnd:
		return c.and(args[0], args[1])
	case OpOr:
		return c.or(args[0], args[1])
	case OpIte:
		return c.Ite(args[0], args[1], args[2])
	case OpExtract:
		return c.Extract(args[0], uint8(t.Value), t.Width)
	}
	return c.apply(t.Op, args[0], args[1])
}

// Ones returns the bits of a number that may be set. All other bits are certainly 0.
func (t *Term) Ones() uint64 {
	known := map[*Term]uint64{}
	var of func(t *Term) uint64
	of = func(t *Term) uint64 {
		if v, ok := known[t]; ok {
			return v
		}
		v := mask(t.Width)
		switch t.Op {
		case OpConst:
			v = t.Value
		case OpIte:
			v = of(t.Args[1]) | of(t.Args[2])
		case OpBitAnd:
			v = of(t.Args[0]) & of(t.Args[1])
		case OpBitOr, OpBitXor:
			v = of(t.Args[0]) | of(t.Args[1])
		case OpConcat:
			v = of(t.Args[0])<<t.Args[1].Width | of(t.Args[1])
		case OpExtract:
			v = of(t.Args[0]) >> t.Value & v
		}
		known[t] = v
		return v
	}
	return of(t)
}

// Lowest returns the number of the lowest bit that is set, or the width if none is set. The result is a choice among constants.
func (c *Context) Lowest(t *Term) *Term {
	ones := t.Ones()
	out := c.Const(64, uint64(t.Width))
	for ones != 0 {
		at := uint8(63 - bits.LeadingZeros64(ones))
		ones &^= 1 << at
		out = c.Ite(c.Eq(c.Extract(t, at, 1), c.Const(1, 1)), c.Const(64, uint64(at)), out)
	}
	return out
}
