// SPDX-License-Identifier: Apache-2.0

package smt

import (
	"fmt"
	"strings"
	"time"
)

// Op is the kind of a term.
type Op uint8

// The kinds. Bit vectors have 1 to 64 bits.
const (
	OpConst Op = iota
	OpVar
	OpApply // an uninterpreted function of its arguments
	OpNot
	OpAnd
	OpOr
	OpIte
	OpEq
	OpULT
	OpULE
	OpSLT
	OpSLE
	OpAdd
	OpSub
	OpMul
	OpBitAnd
	OpBitOr
	OpBitXor
	OpShl
	OpLshr
	OpAshr
	OpExtract // the bits from Value on
	OpConcat  // the first argument has the upper bits
)

// Term is a bit vector, or a formula if its Width is 0. It never changes.
type Term struct {
	Op    Op
	Width uint8
	Value uint64 // value of a constant (1 is true); lowest bit of an extraction
	Name  string // name of a variable or a function
	Args  []*Term

	id     int
	leaves int // number of leaves of a choice whose leaves are all constants; 0 for other terms
}

// Context makes terms. Terms of two contexts must not be mixed. It is for one goroutine.
type Context struct {
	Used  time.Duration // CPU time of z3
	Given *Model        // values that replace variables and applications in terms; nil: none

	terms  map[termKey]*Term
	pushed map[pushKey]*Term
	count  int
	fresh  int
}

type termKey struct {
	op      Op
	width   uint8
	value   uint64
	name    string
	a, b, c *Term
	rest    string
}

// pushKey is an operation that was applied to the leaves of a choice.
type pushKey struct {
	op    Op
	width uint8
	value uint64
	tree  *Term
	other *Term
	left  bool // the tree is the first argument
}

// New returns a context without terms.
func New() *Context { return &Context{terms: map[termKey]*Term{}, pushed: map[pushKey]*Term{}} }

// Terms returns the number of terms that were made.
func (c *Context) Terms() int { return c.count }

func (c *Context) make(op Op, width uint8, value uint64, name string, args ...*Term) *Term {
	k := termKey{op: op, width: width, value: value, name: name}
	switch {
	case len(args) > 3:
		var b strings.Builder
		for _, a := range args {
			fmt.Fprintf(&b, "%d,", a.id)
		}
		k.rest = b.String()
	case len(args) == 3:
		k.a, k.b, k.c = args[0], args[1], args[2]
	case len(args) == 2:
		k.a, k.b = args[0], args[1]
	case len(args) == 1:
		k.a = args[0]
	}
	if t := c.terms[k]; t != nil {
		return t
	}
	c.count++
	t := &Term{Op: op, Width: width, Value: value, Name: name, Args: args, id: c.count}
	switch {
	case op == OpConst:
		t.leaves = 1
	case op == OpIte && args[1].leaves > 0 && args[2].leaves > 0:
		t.leaves = args[1].leaves + args[2].leaves
	}
	c.terms[k] = t
	return t
}

// mask returns a number whose lowest width bits are set.
func mask(width uint8) uint64 {
	if width >= 64 {
		return ^uint64(0)
	}
	return 1<<width - 1
}

// Const is a number.
func (c *Context) Const(width uint8, value uint64) *Term {
	return c.make(OpConst, width, value&mask(width), "")
}

// Bool is true or false.
func (c *Context) Bool(v bool) *Term {
	if v {
		return c.make(OpConst, 0, 1, "")
	}
	return c.make(OpConst, 0, 0, "")
}

// True is the formula that always holds.
func (c *Context) True() *Term { return c.Bool(true) }

// False is the formula that never holds.
func (c *Context) False() *Term { return c.Bool(false) }

// Var is a variable with a name. Two variables of the same name are the same. A width of 0 makes a formula.
func (c *Context) Var(name string, width uint8) *Term {
	if c.Given != nil {
		return c.Const(width, c.Given.Vars[name])
	}
	return c.make(OpVar, width, 0, name)
}

// Fresh returns a variable that no other term has.
func (c *Context) Fresh(name string, width uint8) *Term {
	c.fresh++
	return c.Var(fmt.Sprintf("%s!%d", name, c.fresh), width)
}

// Apply is the value of an uninterpreted function: equal arguments have equal values, and nothing else is known.
func (c *Context) Apply(name string, width uint8, args ...*Term) *Term {
	if c.Given != nil {
		t := &Term{Op: OpApply, Width: width, Name: name, Args: args}
		return c.Const(width, c.Given.Eval(t))
	}
	return c.make(OpApply, width, 0, name, args...)
}

// IsConst reports whether a term is a constant, and its value. For formulas it is 0 or 1.
func (t *Term) IsConst() (value uint64, ok bool) { return t.Value, t.Op == OpConst }

// IsTrue reports whether a formula is the constant true.
func (t *Term) IsTrue() bool { return t.Op == OpConst && t.Value == 1 }

// IsFalse reports whether a formula is the constant false.
func (t *Term) IsFalse() bool { return t.Op == OpConst && t.Value == 0 }

// Not is the negation.
func (c *Context) Not(a *Term) *Term {
	switch a.Op {
	case OpConst:
		return c.Bool(a.Value == 0)
	case OpNot:
		return a.Args[0]
	}
	return c.make(OpNot, 0, 0, "", a)
}

// And is the conjunction of formulas.
func (c *Context) And(list ...*Term) *Term {
	out := c.True()
	for _, t := range list {
		out = c.and(out, t)
	}
	return out
}

func (c *Context) and(a, b *Term) *Term {
	switch {
	case a.IsFalse() || b.IsFalse() || c.Not(a) == b:
		return c.False()
	case a.IsTrue() || a == b:
		return b
	case b.IsTrue() || contains(a, b):
		return a
	case contains(b, a):
		return b
	case contains(a, c.Not(b)) || contains(b, c.Not(a)):
		return c.False()
	}
	return c.make(OpAnd, 0, 0, "", a, b)
}

// contains reports whether a conjunction has a part near its end. Path conditions have their latest branches there.
func contains(a, part *Term) bool {
	for range 4 {
		if a.Op != OpAnd {
			return a == part
		}
		if a.Args[1] == part {
			return true
		}
		a = a.Args[0]
	}
	return false
}

// Or is the disjunction of formulas.
func (c *Context) Or(list ...*Term) *Term {
	out := c.False()
	for _, t := range list {
		out = c.or(out, t)
	}
	return out
}

func (c *Context) or(a, b *Term) *Term {
	switch {
	case a.IsTrue() || b.IsTrue() || c.Not(a) == b:
		return c.True()
	case a.IsFalse() || a == b:
		return b
	case b.IsFalse():
		return a
	case a.Op == OpAnd && a.Args[0] == b || a.Op == OpAnd && a.Args[1] == b:
		return b
	case b.Op == OpAnd && b.Args[0] == a || b.Op == OpAnd && b.Args[1] == a:
		return a
	case a.Op == OpAnd && b.Op == OpAnd && a.Args[0] == b.Args[0]: // both paths of a branch
		return c.and(a.Args[0], c.or(a.Args[1], b.Args[1]))
	}
	return c.make(OpOr, 0, 0, "", a, b)
}

// Implies returns a formula that holds unless a holds and b does not.
func (c *Context) Implies(a, b *Term) *Term { return c.or(c.Not(a), b) }

// Ite returns a if cond holds, and otherwise b.
func (c *Context) Ite(cond, a, b *Term) *Term {
	switch {
	case cond.IsTrue() || a == b:
		return a
	case cond.IsFalse():
		return b
	case cond.Op == OpNot:
		return c.Ite(cond.Args[0], b, a)
	}
	if a.Width == 0 {
		switch {
		case a.IsTrue():
			return c.or(cond, b)
		case a.IsFalse():
			return c.and(c.Not(cond), b)
		case b.IsTrue():
			return c.or(c.Not(cond), a)
		case b.IsFalse():
			return c.and(cond, a)
		}
	}
	if b.Op == OpIte && b.Args[1] == a {
		return c.Ite(c.or(cond, b.Args[0]), a, b.Args[2])
	}
	return c.make(OpIte, a.Width, 0, "", cond, a, b)
}

// Choice returns the value at an index of a list of constants. The result is nested choices that halve the range.
func (c *Context) Choice(index *Term, values []uint64, width uint8) *Term {
	type run struct{ first, value uint64 }
	var runs []run
	for i, v := range values {
		if len(runs) == 0 || runs[len(runs)-1].value != v {
			runs = append(runs, run{uint64(i), v})
		}
	}
	var of func(runs []run) *Term
	of = func(runs []run) *Term {
		if len(runs) == 1 {
			return c.Const(width, runs[0].value)
		}
		middle := len(runs) / 2
		return c.Ite(c.ULT(index, c.Const(index.Width, runs[middle].first)), of(runs[:middle]), of(runs[middle:]))
	}
	return of(runs)
}

// Eq holds if a and b are equal.
func (c *Context) Eq(a, b *Term) *Term {
	if a == b {
		return c.True()
	}
	if a.Width == 0 {
		return c.Ite(a, b, c.Not(b))
	}
	if a.Op == OpConst {
		a, b = b, a
	}
	if b.Op == OpConst {
		switch {
		case a.Op == OpConst:
			return c.Bool(a.Value == b.Value)
		case a.Op == OpConcat:
			low := a.Args[1].Width
			return c.and(c.Eq(a.Args[1], c.Const(low, b.Value)), c.Eq(a.Args[0], c.Const(a.Args[0].Width, b.Value>>low)))
		case a.Op == OpBitXor && a.Args[1].Op == OpConst:
			return c.Eq(a.Args[0], c.Const(a.Width, a.Args[1].Value^b.Value))
		case a.leaves > 0:
			return c.push(OpEq, 0, 0, a, b, true)
		case partlyConstant(a):
			return c.Ite(a.Args[0], c.Eq(a.Args[1], b), c.Eq(a.Args[2], b))
		}
	}
	if a.Op == OpConcat && b.Op == OpConcat && a.Args[0].Width == b.Args[0].Width {
		return c.and(c.Eq(a.Args[1], b.Args[1]), c.Eq(a.Args[0], b.Args[0]))
	}
	if a.id < b.id {
		a, b = b, a
	}
	return c.make(OpEq, 0, 0, "", a, b)
}

// partlyConstant reports whether a term is a choice with a constant side.
func partlyConstant(t *Term) bool {
	return t.Op == OpIte && (t.Args[1].Op == OpConst || t.Args[2].Op == OpConst)
}

// push applies an operation to all leaves of a tree.
func (c *Context) push(op Op, width uint8, value uint64, tree, other *Term, left bool) *Term {
	k := pushKey{op, width, value, tree, other, left}
	if t := c.pushed[k]; t != nil {
		return t
	}
	var t *Term
	switch {
	case tree.Op == OpIte:
		t = c.Ite(tree.Args[0], c.push(op, width, value, tree.Args[1], other, left), c.push(op, width, value, tree.Args[2], other, left))
	case other == nil:
		t = c.Extract(tree, uint8(value), width)
	case left:
		t = c.apply(op, tree, other)
	default:
		t = c.apply(op, other, tree)
	}
	c.pushed[k] = t
	return t
}

func (c *Context) apply(op Op, a, b *Term) *Term {
	switch op {
	case OpEq:
		return c.Eq(a, b)
	case OpConcat:
		return c.Concat(a, b)
	case OpULT, OpULE, OpSLT, OpSLE:
		return c.compare(op, a, b)
	}
	return c.binary(op, a, b)
}

// ULT holds if a < b, both unsigned.
func (c *Context) ULT(a, b *Term) *Term { return c.compare(OpULT, a, b) }

// ULE holds if a <= b, both unsigned.
func (c *Context) ULE(a, b *Term) *Term { return c.compare(OpULE, a, b) }

// SLT holds if a < b, both signed.
func (c *Context) SLT(a, b *Term) *Term { return c.compare(OpSLT, a, b) }

// SLE holds if a <= b, both signed.
func (c *Context) SLE(a, b *Term) *Term { return c.compare(OpSLE, a, b) }

func signed(t *Term) int64 {
	shift := 64 - t.Width
	return int64(t.Value<<shift) >> shift
}

// Map applies a function to a number: to a constant, or to each leaf of a choice among constants. It returns nil for other terms.
func (c *Context) Map(t *Term, width uint8, f func(uint64) uint64) *Term {
	if t.leaves == 0 {
		return nil
	}
	known := map[*Term]*Term{}
	var of func(t *Term) *Term
	of = func(t *Term) *Term {
		if t.Op == OpConst {
			return c.Const(width, f(t.Value))
		}
		if out := known[t]; out != nil {
			return out
		}
		out := c.Ite(t.Args[0], of(t.Args[1]), of(t.Args[2]))
		known[t] = out
		return out
	}
	return of(t)
}

// Choice returns the condition and the two sides of a choice; ok is false for other terms.
func (t *Term) Choice() (cond, a, b *Term, ok bool) {
	if t.Op != OpIte || t.leaves == 0 {
		return nil, nil, nil, false
	}
	return t.Args[0], t.Args[1], t.Args[2], true
}
