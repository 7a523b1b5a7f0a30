// SPDX-License-Identifier: Apache-2.0

package smt

// Model gives values to variables and to applications of uninterpreted functions.
type Model struct {
	Vars  map[string]uint64
	Apply func(name string, args []uint64) uint64 // nil: all are 0
}

// Eval returns the value of a term in a model. The value of a formula is 0 or 1. Variables that the model does not name are 0.
func (m *Model) Eval(t *Term) uint64 { return (&evaluation{m, map[*Term]uint64{}}).of(t) }

// EvalAll returns the values of several terms. It evaluates their common parts once.
func (m *Model) EvalAll(list ...*Term) []uint64 {
	e := &evaluation{m, map[*Term]uint64{}}
	out := make([]uint64, len(list))
	for i, t := range list {
		out[i] = e.of(t)
	}
	return out
}

type evaluation struct {
	*Model
	known map[*Term]uint64
}

func (e *evaluation) of(t *Term) uint64 {
	if t.Op == OpConst {
		return t.Value
	}
	if v, ok := e.known[t]; ok {
		return v
	}
	v := e.value(t)
	if t.Width == 0 {
		v &= 1
	} else {
		v &= mask(t.Width)
	}
	e.known[t] = v
	return v
}

func (e *evaluation) value(t *Term) uint64 {
	switch t.Op {
	case OpVar:
		return e.Vars[t.Name]
	case OpApply:
		args := make([]uint64, len(t.Args))
		for i, a := range t.Args {
			args[i] = e.of(a)
		}
		if e.Model.Apply == nil {
			return 0
		}
		return e.Model.Apply(t.Name, args)
	case OpNot:
		return 1 - e.of(t.Args[0])
	case OpAnd:
		if e.of(t.Args[0]) == 0 {
			return 0
		}
		return e.of(t.Args[1])
	case OpOr:
		if e.of(t.Args[0]) == 1 {
			return 1
		}
		return e.of(t.Args[1])
	case OpIte:
		if e.of(t.Args[0]) == 1 {
			return e.of(t.Args[1])
		}
		return e.of(t.Args[2])
	case OpExtract:
		return e.of(t.Args[0]) >> t.Value
	}
	a, b := e.of(t.Args[0]), e.of(t.Args[1])
	w := t.Args[0].Width
	switch t.Op {
	case OpEq:
		return number(a == b)
	case OpULT:
		return number(a < b)
	case OpULE:
		return number(a <= b)
	case OpSLT:
		return number(int64(a<<(64-w)) < int64(b<<(64-w)))
	case OpSLE:
		return number(int64(a<<(64-w)) <= int64(b<<(64-w)))
	case OpConcat:
		return a<<t.Args[1].Width | b
	}
	return operate(t.Op, w, a, b)
}

func number(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
