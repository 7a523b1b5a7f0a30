// SPDX-License-Identifier: Apache-2.0

package smt

// Add is a + b, modulo 2^width, like all operations here.
func (c *Context) Add(a, b *Term) *Term { return c.binary(OpAdd, a, b) }

// Sub is a - b.
func (c *Context) Sub(a, b *Term) *Term { return c.binary(OpSub, a, b) }

// Mul is a * b.
func (c *Context) Mul(a, b *Term) *Term { return c.binary(OpMul, a, b) }

// BitAnd returns the bits that are set in both numbers.
func (c *Context) BitAnd(a, b *Term) *Term { return c.binary(OpBitAnd, a, b) }

// BitOr returns the bits that are set in at least one number.
func (c *Context) BitOr(a, b *Term) *Term { return c.binary(OpBitOr, a, b) }

// BitXor returns the bits that are set in exactly one number.
func (c *Context) BitXor(a, b *Term) *Term { return c.binary(OpBitXor, a, b) }

// Shl shifts to the left. A shift by the width or more gives 0.
func (c *Context) Shl(a, b *Term) *Term { return c.binary(OpShl, a, b) }

// Lshr shifts to the right. A shift by the width or more gives 0.
func (c *Context) Lshr(a, b *Term) *Term { return c.binary(OpLshr, a, b) }

// Ashr shifts to the right and keeps the sign.
func (c *Context) Ashr(a, b *Term) *Term { return c.binary(OpAshr, a, b) }

// operate returns the result of an operation on constants of a width.
func operate(op Op, width uint8, a, b uint64) uint64 {
	switch op {
	case OpAdd:
		return a + b
	case OpSub:
		return a - b
	case OpMul:
		return a * b
	case OpBitAnd:
		return a & b
	case OpBitOr:
		return a | b
	case OpBitXor:
		return a ^ b
	case OpShl:
		return a << b
	case OpLshr:
		return a >> b
	}
	shift := 64 - width
	return uint64(int64(a<<shift) >> shift >> b)
}

func (c *Context) binary(op Op, a, b *Term) *Term {
	w := a.Width
	if a.Op == OpConst && b.Op == OpConst {
		return c.Const(w, operate(op, w, a.Value, b.Value))
	}
	if a.Op == OpConst && op <= OpBitXor && op != OpSub {
		a, b = b, a // constants are second
	}
	if b.Op == OpConst {
		if t := c.withConstant(op, a, b); t != nil {
			return t
		}
		if a.leaves > 0 {
			return c.push(op, w, 0, a, b, true)
		}
	} else if a.Op == OpConst && b.leaves > 0 {
		return c.push(op, w, 0, b, a, false)
	}
	switch {
	case a == b && (op == OpSub || op == OpBitXor):
		return c.Const(w, 0)
	case a == b && (op == OpBitAnd || op == OpBitOr):
		return a
	case op == OpBitOr && a.Op == OpConcat && b.Op == OpConcat && a.Args[0].Width == b.Args[0].Width,
		op == OpBitAnd && a.Op == OpConcat && b.Op == OpConcat && a.Args[0].Width == b.Args[0].Width:
		return c.Concat(c.binary(op, a.Args[0], b.Args[0]), c.binary(op, a.Args[1], b.Args[1]))
	case op == OpBitOr && leadingZeros(a) > 0 && trailingZeros(b) >= w-leadingZeros(a):
		return c.joined(b, a)
	case op == OpBitOr && leadingZeros(b) > 0 && trailingZeros(a) >= w-leadingZeros(b):
		return c.joined(a, b)
	}
	if (op == OpAdd || op == OpMul || op == OpBitAnd || op == OpBitOr || op == OpBitXor) && b.Op != OpConst && a.id > b.id {
		a, b = b, a
	}
	return c.make(op, w, 0, "", a, b)
}

// joined returns the sum of two numbers with no common bits. The bits of high are above the bits of low.
func (c *Context) joined(high, low *Term) *Term {
	at := trailingZeros(high)
	return c.Concat(c.Extract(high, at, high.Width-at), c.Extract(low, 0, at))
}

// trailingZeros counts lower bits that are certainly 0.
func trailingZeros(t *Term) uint8 {
	if t.Op == OpConcat && t.Args[1].Op == OpConst && t.Args[1].Value == 0 {
		return t.Args[1].Width
	}
	return 0
}

// withConstant simplifies an operation whose second argument is a constant. It returns nil if it cannot.
func (c *Context) withConstant(op Op, a, b *Term) *Term {
	w, v := a.Width, b.Value
	switch op {
	case OpAdd, OpSub:
		if v == 0 {
			return a
		}
		if op == OpSub {
			return c.binary(OpAdd, a, c.Const(w, -v))
		}
		if a.Op == OpAdd && a.Args[1].Op == OpConst {
			return c.binary(OpAdd, a.Args[0], c.Const(w, a.Args[1].Value+v))
		}
	case OpMul:
		if v == 0 {
			return b
		}
		if v == 1 {
			return a
		}
	case OpBitAnd:
		switch {
		case v == 0:
			return b
		case v == mask(w):
			return a
		case a.Op == OpConcat:
			return c.halves(op, a, v)
		}
		return c.maskedParts(a, v)
	case OpBitOr, OpBitXor:
		switch {
		case v == 0:
			return a
		case v == mask(w) && op == OpBitOr:
			return b
		case a.Op == OpConcat:
			return c.halves(op, a, v)
		}
	case OpShl:
		switch {
		case v == 0:
			return a
		case v >= uint64(w):
			return c.Const(w, 0)
		}
		return c.Concat(c.Extract(a, 0, w-uint8(v)), c.Const(uint8(v), 0))
	case OpLshr:
		switch {
		case v == 0:
			return a
		case v >= uint64(w):
			return c.Const(w, 0)
		}
		return c.Concat(c.Const(uint8(v), 0), c.Extract(a, uint8(v), w-uint8(v)))
	}
	return nil
}

// halves applies a bitwise operation with a constant to both parts of a concatenation.
func (c *Context) halves(op Op, a *Term, v uint64) *Term {
	high, low := a.Args[0], a.Args[1]
	return c.Concat(c.binary(op, high, c.Const(high.Width, v>>low.Width)), c.binary(op, low, c.Const(low.Width, v)))
}

// maskedParts returns the bits that a mask selects, if the mask is one run of ones. It returns nil for other masks.
func (c *Context) maskedParts(a *Term, v uint64) *Term {
	from := uint8(0)
	for v>>from&1 == 0 {
		from++
	}
	run := v >> from
	if run&(run+1) != 0 {
		return nil
	}
	n := uint8(0)
	for run>>n&1 == 1 {
		n++
	}
	out := c.Extract(a, from, n)
	if from > 0 {
		out = c.Concat(out, c.Const(from, 0))
	}
	return c.ZExt(out, a.Width)
}

// Extract returns width bits of a number, starting at bit from.
func (c *Context) Extract(a *Term, from, width uint8) *Term {
	switch {
	case from == 0 && width == a.Width:
		return a
	case a.Op == OpConst:
		return c.Const(width, a.Value>>from)
	case a.Op == OpExtract:
		return c.Extract(a.Args[0], from+uint8(a.Value), width)
	case a.Op == OpConcat:
		low := a.Args[1].Width
		switch {
		case from >= low:
			return c.Extract(a.Args[0], from-low, width)
		case from+width <= low:
			return c.Extract(a.Args[1], from, width)
		}
		return c.Concat(c.Extract(a.Args[0], 0, from+width-low), c.Extract(a.Args[1], from, low-from))
	case a.Op == OpIte:
		return c.push(OpExtract, width, uint64(from), a, nil, true)
	case a.Op == OpBitAnd || a.Op == OpBitOr || a.Op == OpBitXor, from == 0 && (a.Op == OpAdd || a.Op == OpSub || a.Op == OpMul):
		return c.binary(a.Op, c.Extract(a.Args[0], from, width), c.Extract(a.Args[1], from, width))
	}
	return c.make(OpExtract, width, uint64(from), "", a)
}

// Concat concatenates two numbers, the first as the upper bits.
func (c *Context) Concat(high, low *Term) *Term {
	w := high.Width + low.Width
	switch {
	case high.Op == OpConst && low.Op == OpConst:
		return c.Const(w, high.Value<<low.Width|low.Value)
	case high.Op == OpExtract && low.Op == OpExtract && high.Args[0] == low.Args[0] && high.Value == low.Value+uint64(low.Width):
		return c.Extract(low.Args[0], uint8(low.Value), w)
	case low.Op == OpConcat: // normal form: ((a b) c)
		return c.Concat(c.Concat(high, low.Args[0]), low.Args[1])
	case high.Op == OpConst && low.leaves > 0:
		return c.push(OpConcat, w, 0, low, high, false)
	case low.Op == OpConst && high.leaves > 0:
		return c.push(OpConcat, w, 0, high, low, true)
	case high.Op == OpConcat && low.Op == OpConst && high.Args[1].Op == OpConst:
		return c.Concat(high.Args[0], c.Concat(high.Args[1], low))
	case high.Op == OpConcat && low.Op == OpExtract && high.Args[1].Op == OpExtract && high.Args[1].Args[0] == low.Args[0] &&
		high.Args[1].Value == low.Value+uint64(low.Width):
		return c.Concat(high.Args[0], c.Concat(high.Args[1], low))
	}
	return c.make(OpConcat, w, 0, "", high, low)
}

// ZExt extends a number with zeros to a width.
func (c *Context) ZExt(a *Term, width uint8) *Term {
	if a.Width == width {
		return a
	}
	return c.Concat(c.Const(width-a.Width, 0), a)
}

// Swap reverses the order of the bytes.
func (c *Context) Swap(a *Term) *Term {
	out := c.Extract(a, 0, 8)
	for at := uint8(8); at < a.Width; at += 8 {
		out = c.Concat(out, c.Extract(a, at, 8))
	}
	return out
}
