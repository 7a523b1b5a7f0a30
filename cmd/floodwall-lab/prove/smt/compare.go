// SPDX-License-Identifier: Apache-2.0

// This file simplifies comparisons.

package smt

import "math/bits"

func (c *Context) compare(op Op, a, b *Term) *Term {
	if a == b {
		return c.Bool(op == OpULE || op == OpSLE)
	}
	if a.Op == OpConst && b.Op == OpConst {
		switch op {
		case OpULT:
			return c.Bool(a.Value < b.Value)
		case OpULE:
			return c.Bool(a.Value <= b.Value)
		case OpSLT:
			return c.Bool(signed(a) < signed(b))
		}
		return c.Bool(signed(a) <= signed(b))
	}
	if op == OpULE { // normal form: a <= b is not b < a
		return c.Not(c.compare(OpULT, b, a))
	}
	if op == OpSLE {
		return c.Not(c.compare(OpSLT, b, a))
	}
	switch {
	case a.leaves > 0 && b.Op == OpConst:
		return c.push(op, 0, 0, a, b, true)
	case b.leaves > 0 && a.Op == OpConst:
		return c.push(op, 0, 0, b, a, false)
	}
	switch {
	case partlyConstant(a) && b.Op == OpConst:
		return c.Ite(a.Args[0], c.compare(op, a.Args[1], b), c.compare(op, a.Args[2], b))
	case partlyConstant(b) && a.Op == OpConst:
		return c.Ite(b.Args[0], c.compare(op, a, b.Args[1]), c.compare(op, a, b.Args[2]))
	}
	if op == OpULT {
		if t := c.lessByUpper(a, b); t != nil {
			return t
		}
		if t := c.lessWithoutZeros(a, b); t != nil {
			return t
		}
	}
	return c.make(op, 0, 0, "", a, b)
}

// lessByUpper compares a constant with a number whose upper bits are constant. It returns nil for other terms.
func (c *Context) lessByUpper(a, b *Term) *Term {
	upper := func(t *Term) (*Term, bool) {
		for t.Op == OpConcat {
			t = t.Args[0]
		}
		return t, t.Op == OpConst && t.Value != 0
	}
	x, known := upper(a)
	if y, ok := upper(b); ok && b.Op == OpConcat && a.Op == OpConst {
		x, known = y, true
	} else if a.Op != OpConcat || b.Op != OpConst {
		return nil
	}
	if !known {
		return nil
	}
	low := a.Width - x.Width
	p, q := c.Extract(a, low, x.Width), c.Extract(b, low, x.Width)
	if p.Value != q.Value {
		return c.Bool(p.Value < q.Value)
	}
	return c.ULT(c.Extract(a, 0, low), c.Extract(b, 0, low))
}

// lessWithoutZeros compares numbers without the upper bits that are 0 in both. It returns nil if there are no such bits.
func (c *Context) lessWithoutZeros(a, b *Term) *Term {
	zeros := min(leadingZeros(a), leadingZeros(b))
	if zeros == 0 {
		if b.Op == OpConst && b.Value == 0 {
			return c.False()
		}
		if a.Op == OpConst && a.Value == mask(a.Width) {
			return c.False()
		}
		return nil
	}
	if zeros >= a.Width {
		return c.False()
	}
	left := a.Width - zeros
	if b.Op == OpConst && leadingZeros(a) > leadingZeros(b) {
		return c.True() // b has a set bit above all bits of a
	}
	if a.Op == OpConst && leadingZeros(b) > leadingZeros(a) {
		return c.False()
	}
	return c.ULT(c.Extract(a, 0, left), c.Extract(b, 0, left))
}

// leadingZeros counts upper bits that are certainly 0.
func leadingZeros(t *Term) uint8 {
	switch {
	case t.Op == OpConst:
		return uint8(bits.LeadingZeros64(t.Value)) - (64 - t.Width)
	case t.Op == OpConcat:
		if n := leadingZeros(t.Args[0]); n < t.Args[0].Width {
			return n
		}
		return t.Args[0].Width + leadingZeros(t.Args[1])
	}
	return 0
}
