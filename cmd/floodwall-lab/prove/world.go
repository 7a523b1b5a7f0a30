// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// world is the environment that both sides have in common besides the frame: the content of maps, and the results of the functions that the code
// calls. A function that depends on state (limits, bans, flows) is uninterpreted: equal arguments give equal results.
type world struct {
	program   *ir.Program
	slots     []uint32          // the counter of each rule
	content   map[string][]byte // content of the maps that never change
	limits    []image.LimitInfo
	dynamic   map[int]int       // the number of each dynamic set, by its index
	classes   *classes          // classes of addresses, as the proof of the tables found them
	offsets   map[string]uint32 // offsets of the constants of limits
	tables    *tables
	marksAt   int // offset of the marks of dynamic sets in their memory
	decoded   *decoded
	members   map[int64]int64 // offsets in struct xdp_buff of the members of struct xdp_md, for code that the kernel has translated
	netfilter *netWorld       // nil: the other side is the program for XDP
	assumed   []*smt.Term     // the guarantees of the tables' proof, and of the owners of the maps
}

// otherFamily returns a formula that holds if an argument is not the family of the packet.
func (w *world) otherFamily(c *smt.Context, family *smt.Term) *smt.Term {
	return c.Not(c.Eq(c.Extract(family, 0, 32), c.Const(32, flag(w.decoded.kind.v6))))
}

// result returns the result of a function. wrong holds if the arguments of the function have no meaning in the model.
func (w *world) result(m *machine, s *state, name string, args []*smt.Term) (result, wrong *smt.Term) {
	switch name {
	case image.Class4, image.Class4InFilter, image.Class6:
		return w.class(m.Context), m.Not(w.sourceIs(m.Context, args))
	case image.Class4OfHost:
		return w.class(m.Context), m.Or(w.inBlocks(m.Context), m.Not(m.Eq(args[0], m.ZExt(w.hostNumber(m.Context), 64))))
	case image.IsMember:
		in := m.Apply("member", 0, m.Extract(args[0], 0, 32), args[1], args[2])
		return m.Ite(in, m.Const(64, 1), m.Const(64, 0)), w.otherFamily(m.Context, args[3])
	case image.ChargeHash:
		return w.charge(m, s, args)
	case image.ProvedInFrame, image.StrayInFrame, image.KnownInFrame, image.GoesOnInFrame, image.AgainInFrame:
		return m.Apply(name, 64, args[1]), w.otherFamily(m.Context, args[0])
	case image.DecideKnown, image.DecideUnknown:
		return m.Apply(name, 64, args[1:]...), w.otherFamily(m.Context, args[0])
	}
	return m.Apply(name, 64, args...), m.False()
}

// sourceIs returns a formula that holds if arguments are the source address.
func (w *world) sourceIs(c *smt.Context, args []*smt.Term) *smt.Term {
	hi, lo := w.decoded.halves(w.decoded.source)
	if !w.decoded.kind.v6 {
		if len(args) != 1 {
			return c.False()
		}
		return c.Eq(args[0], c.ZExt(c.Extract(lo, 0, 32), 64))
	}
	if len(args) != 2 {
		return c.False()
	}
	return c.And(c.Eq(args[0], hi), c.Eq(args[1], lo))
}

// mine returns the possible classes of the source: the classes of addresses of the source's family.
func (w *world) mine() []uint16 { return w.classes.of(w.decoded.kind.v6) }

// class returns the class of the source.
func (w *world) class(c *smt.Context) *smt.Term { return w.classAs(c, classVar(false)) }

// classAs returns the class of an address. A variable selects the class.
func (w *world) classAs(c *smt.Context, variable string) *smt.Term {
	list := w.mine()
	values := make([]uint64, len(list))
	for i, class := range list {
		values[i] = uint64(class)
	}
	return c.Choice(c.Var(variable, 32), values, 64)
}

// inSets returns a formula that holds if an address is in any of the static sets, by the variable of the address's class. It returns nil if the
// classes do not determine this.
func (w *world) inSets(c *smt.Context, variable string, sets []int) *smt.Term {
	in := w.classes.holds(w.mine(), sets)
	if in == nil {
		return nil
	}
	index, out := c.Var(variable, 32), c.False()
	for i := 0; i < len(in); i++ {
		first := i
		for i < len(in) && in[i] {
			i++
		}
		if i == first {
			continue
		}
		is := c.Eq(index, c.Const(32, uint64(first)))
		switch {
		case i == len(in): // as in the choice of the class, values above the last index mean the last class
			is = c.ULE(c.Const(32, uint64(first)), index)
		case i-first > 1:
			is = c.And(c.ULE(c.Const(32, uint64(first)), index), c.ULT(index, c.Const(32, uint64(i))))
		}
		out = c.Or(out, is)
	}
	return out
}

// hostNumber returns the number of the source in the hash of hosts: permuted() of bpf/classify.h.
func (w *world) hostNumber(c *smt.Context) *smt.Term {
	h := w.classes.hosts
	n := c.Mul(c.BitXor(w.decoded.joined(w.decoded.source), c.Const(32, uint64(h.Key))), c.Const(32, uint64(h.Factor)))
	n = c.BitXor(n, c.Lshr(n, c.Const(32, 16)))
	return c.Mul(n, c.Const(32, addrs.HostFactor))
}

func (w *world) assume(t *smt.Term) { w.assumed = append(w.assumed, t) }
