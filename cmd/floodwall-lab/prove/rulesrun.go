// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// rulesRun is the state of decide(), besides its instructions, while a machine executes it: struct packet, whose values are variables, the tables of
// the rules, and condition_holds().
type rulesRun struct {
	*smt.Context
	memory     map[string][]byte
	elements   map[string]int // value size of the maps in which values are looked up
	conditions *conditions
	meaning    *rulesMeaning
	sets       [2]uint32 // the dynamic sets that C looks up, for the source and for the destination
	local      uint32    // the set of the host's own addresses, which C may look up
	classified [2]bool   // C looks up the classes

	exits   []ruleExit
	defined []*smt.Term             // definitions of the variables that the machine makes
	lowest  map[*smt.Term]*smt.Term // the definition of such a variable as a choice
	reads   map[readKey]*smt.Term
	lost    bool // the code reads a table at too many offsets for a formula
}

// ruleExit is an end of decide().
type ruleExit struct {
	cond      *smt.Term
	decision  *smt.Term // 32 bits
	condition *smt.Term // 32 bits: the named condition, and the place at which to continue if the condition does not hold
	first     *smt.Term
	effects   effects
}

type readKey struct {
	name  string
	size  int
	place *smt.Term
}

// fieldVar is a field of struct packet. Its value is below Field.Size().
func fieldVar(c *smt.Context, f packet.Field) *smt.Term { return c.Var(f.String(), 32) }

// ready puts struct packet where decide() expects it. Members that decide() writes become slots of the stack with an offset that is not negative.
func (r *rulesRun) ready(s *state) {
	s.regs[asm.R2] = value{t: r.Const(64, 0), of: &region{kind: inPacket}}
	for name, at := range map[string]int16{"first": image.First, "condition": image.NextCondition} {
		s.stack[int(at)] = slot{4, value{t: r.ZExt(r.Var(name, 32), 64)}}
	}
}

// readPacket reads a member of struct packet.
func (r *rulesRun) readPacket(s *state, at int64, size int) (v value, why string) {
	if written, ok := s.stack[int(at)]; ok && at >= 0 && written.size == size {
		return written.value, ""
	}
	number := func(t *smt.Term) (value, string) { return value{t: r.ZExt(t, 64)}, "" }
	switch {
	case at == int64(image.FoundPatterns) && size == 8: // 0 if there was no search yet, otherwise the result of the search
		return number(r.Ite(r.Fresh("searched", 0), r.Var("texts", 64), r.Const(64, ^uint64(0))))
	case size != 4 || at < 0 || at%4 != 0:
	case at < int64(packet.NumFields)*4:
		return number(r.meaning.field[packet.Field(at/4)])
	case at == int64(image.SrcClass):
		return value{t: r.classOf(false)}, ""
	case at == int64(image.DstClass):
		return value{t: r.classOf(true)}, ""
	case at == int64(image.SrcDynamic):
		return number(r.dynamicOf(false))
	case at == int64(image.DstDynamic):
		return number(r.dynamicOf(true))
	}
	return value{}, "a member of struct packet is read that this model does not know"
}

// classOf returns the class of an address; 0 if C does not look up the class.
func (r *rulesRun) classOf(destination bool) *smt.Term {
	if !r.classified[flag(destination)] {
		return r.Const(64, 0)
	}
	return r.meaning.world.classAs(r.Context, classVar(destination))
}

func classVar(destination bool) string {
	if destination {
		return "class_of_the_destination"
	}
	return "class"
}

// dynamicOf returns a bit for each dynamic set that contains an address, of the sets that C looks up.
func (r *rulesRun) dynamicOf(destination bool) *smt.Term {
	hi, lo := r.meaning.halves(r.meaning.side(destination))
	out := r.Const(1, 0)
	for number := range uint32(32) {
		bit := r.False()
		in := r.Apply("member", 0, r.Const(32, uint64(number)), hi, lo)
		switch {
		case r.sets[flag(destination)]>>number&1 == 1:
			bit = in
		case r.local>>number&1 == 1:
			bit = r.And(in, r.Var("own_addresses_are_looked_up", 0))
		}
		one := r.Ite(bit, r.Const(1, 1), r.Const(1, 0))
		if number == 0 {
			out = one
		} else {
			out = r.Concat(one, out)
		}
	}
	return out
}

// storePacket writes a member of struct packet. It returns false for a member that decide() must not write.
func (r *rulesRun) storePacket(s *state, at int64, size int, v value) bool {
	if size != 4 || at != int64(image.First) && at != int64(image.NextCondition) || !v.isNumber() {
		return false
	}
	s.stack[int(at)] = slot{4, value{t: r.ZExt(r.Extract(v.t, 0, 32), 64)}}
	return true
}

// readTable reads a value of a table. The content of the table does not change.
func (r *rulesRun) readTable(m *machine, at int, s *state, name string, place *smt.Term, size int) (value, string) {
	content, width := r.memory[name], uint8(8*size)
	if content == nil {
		return value{}, "a map is read that the model does not know"
	}
	behind := false
	word := func(at uint64) uint64 {
		if at > uint64(len(content)) || uint64(len(content))-at < uint64(size) {
			behind = true
			return 0
		}
		switch size {
		case 1:
			return uint64(content[at])
		case 2:
			return uint64(native.Uint16(content[at:]))
		case 4:
			return uint64(native.Uint32(content[at:]))
		}
		return native.Uint64(content[at:])
	}
	k := readKey{name, size, place}
	t := r.reads[k]
	if t == nil {
		if t = r.choose(place, width, word); t == nil {
			r.lost = true
			return value{}, "a table is read at a place that the model cannot follow"
		}
		if !behind {
			r.reads[k] = t
		}
	}
	if behind {
		past := r.choose(place, 1, func(at uint64) uint64 {
			behind = false
			word(at)
			return flag(behind)
		})
		m.fault(at, r.And(s.cond, r.Eq(past, r.Const(1, 1))), "a read behind the end of map %s", name)
	}
	return value{t: r.ZExt(t, 64)}, ""
}

// choose applies a function to a number, and returns the result as a term. It applies the function to each of the choices of the number, and to each
// value of the number's single variable. It returns nil if the number is not a finite choice.
func (r *rulesRun) choose(number *smt.Term, width uint8, f func(uint64) uint64) *smt.Term {
	const most = 1 << 15
	known := map[*smt.Term]*smt.Term{}
	var of func(t *smt.Term) *smt.Term
	of = func(t *smt.Term) *smt.Term {
		if v, ok := t.IsConst(); ok {
			return r.Const(width, f(v))
		}
		if out, done := known[t]; done {
			return out
		}
		known[t] = nil
		part, ok := t.Part()
		r.lost = r.lost || len(known) > most
		switch {
		case !ok || r.lost:
			return nil
		case part.Op == smt.OpIte:
			a, b := of(r.Replace(t, part, part.Args[1])), of(r.Replace(t, part, part.Args[2]))
			if a == nil || b == nil {
				return nil
			}
			known[t] = r.Ite(part.Args[0], a, b)
		default:
			values, index := r.values(t, part)
			if values == nil {
				return nil
			}
			for i := range values {
				values[i] = f(values[i])
			}
			if tree := r.lowest[part]; tree != nil {
				known[t] = r.Map(tree, width, func(v uint64) uint64 { return values[v] })
			} else {
				known[t] = r.Choice(index, values, width)
			}
		}
		return known[t]
	}
	return of(number)
}

// values returns the values of a term for each value of its only variable. The variable must be known to have few values.
func (r *rulesRun) values(t, variable *smt.Term) (values []uint64, index *smt.Term) {
	n := 0
	if r.lowest[variable] != nil {
		n = 65
	}
	for f := range packet.NumFields {
		if r.meaning.field[f] == variable {
			n = int(f.Size())
		}
	}
	if variable == r.Var("first", 32) {
		n = r.meaning.mostFirst + 1
	}
	if n == 0 {
		return nil, nil
	}
	values, ok := t.Table(variable, n)
	if !ok {
		return nil, nil
	}
	return values, variable
}

// simplify recognizes the code that finds the lowest bit of a word in tables. x-1 & ^x has the bits below the lowest bit of x, and the code counts
// the ones of it. x & x-1 is x without the lowest bit. a and b are the operands of an instruction whose result is t.
func (r *rulesRun) simplify(s *state, op asm.ALUOp, a, b, t *smt.Term) *smt.Term {
	if a.Width != 64 {
		return t
	}
	one := r.Const(64, 1)
	switch op {
	case asm.And:
		if r.Sub(a, one) == b { // this removes the lowest bit; after the last one no bit is left
			if ones := a.Ones(); ones&(ones-1) == 0 {
				return r.Const(64, 0)
			}
			return r.BitAnd(t, r.Const(64, a.Ones()&(a.Ones()-1)))
		}
		for i := range s.regs {
			x := s.regs[i].t
			if s.regs[i].of != nil || x == nil || x.Op == smt.OpConst || r.Sub(x, one) != a || r.BitXor(x, r.Const(64, ^uint64(0))) != b {
				continue
			}
			at := r.Fresh("lowest", 7)
			tree := r.Lowest(x)
			r.lowest[at] = tree
			r.defined = append(r.defined, r.Eq(r.ZExt(at, 64), tree))
			return r.Sub(r.Shl(one, r.ZExt(at, 64)), one)
		}
	case asm.Mul: // the step that counts the ones
		if part, ok := t.Part(); ok && part != nil && r.lowest[part] != nil {
			if counted := r.choose(t, 64, func(v uint64) uint64 { return v }); counted != nil {
				return counted
			}
		}
	}
	return t
}

// call models a call of condition_holds().
func (r *rulesRun) call(m *machine, at int, s *state, name string, args [6]value) error {
	if name != image.Condition {
		return &errUnknown{at, "a call of " + name + "()"}
	}
	zero := r.Const(64, 0)
	if args[1].of == nil || args[1].of.kind != inContext || args[1].t != zero || args[2].of == nil || args[2].of.kind != inPacket || args[2].t != zero {
		m.fault(at, s.cond, "condition_holds() without the context and the packet")
		return nil
	}
	number := m.number(at, s, args[3])
	if number == nil {
		return nil
	}
	n, ok := number.IsConst()
	if !ok {
		return &errUnknown{at, "a condition whose number is not fixed"}
	}
	if n = uint64(uint32(n)); n >= uint64(len(r.conditions.records)) || r.conditions.records[n] == nil {
		m.fault(at, s.cond, "condition %d is not there", n)
		return nil
	}
	holds := r.asks(r.conditions.records[n], s.cond, s.charged)
	s.regs[asm.R0] = value{t: r.Ite(holds, r.Const(64, 1), zero)}
	m.to(at+1, s)
	return nil
}

// leave ends decide() with the value in r0.
func (r *rulesRun) leave(m *machine, at int, s *state) {
	r0 := s.regs[asm.R0]
	if !r0.isNumber() {
		m.fault(at, s.cond, "no number is returned")
		return
	}
	r.exits = append(r.exits, ruleExit{
		cond: s.cond, decision: r.Extract(r0.t, 0, 32), effects: s.charged,
		condition: r.Extract(s.stack[int(image.NextCondition)].t, 0, 32), first: r.Extract(s.stack[int(image.First)].t, 0, 32),
	})
}

// lookup models bpf_map_lookup_elem() of an array.
func (r *rulesRun) lookup(name string, key *smt.Term) value {
	none := r.choose(r.ZExt(key, 64), 1, func(k uint64) uint64 {
		return flag(r.elements[name] == 0 || int(k) >= len(r.memory[name])/r.elements[name])
	})
	out := value{t: r.Const(64, 0), of: &region{kind: inElement, name: name, key: key}, null: r.True()}
	if none != nil {
		out.null = r.Eq(none, r.Const(1, 1))
	}
	return out
}

// readElement reads the value that a lookup found.
func (r *rulesRun) readElement(m *machine, at int, s *state, of *region, place *smt.Term, size int) (value, string) {
	if last := r.choose(r.Add(place, r.Const(64, uint64(size))), 1, func(end uint64) uint64 { return flag(end > uint64(r.elements[of.name])) }); last == nil {
		return value{}, "an element is read at a place that the model cannot follow"
	} else if !last.IsFalse() {
		m.fault(at, r.And(s.cond, r.Eq(last, r.Const(1, 1))), "a read behind the end of an element of map %s", of.name)
	}
	return r.readTable(m, at, s, of.name, r.Add(r.Mul(r.ZExt(of.key, 64), r.Const(64, uint64(r.elements[of.name]))), place), size)
}
