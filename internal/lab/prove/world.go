package prove

import (
	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/lab/prove/smt"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// world is what both sides are asked about beside the frame: the content of maps, and what the functions say that the code calls. A function
// of state (limits, bans, flows) is uninterpreted: equal arguments have equal results.
type world struct {
	program   *ir.Program
	slots     []uint32          // of each rule, the counter
	content   map[string][]byte // of the maps that never change
	limits    []image.LimitInfo
	dynamic   map[int]int       // the number of each dynamic set, by its index
	classes   *classes          // of addresses, as the proof of the tables has found them
	offsets   map[string]uint32 // of the constants of limits
	tables    *tables
	marksAt   int // where the marks of dynamic sets are in their memory
	decoded   *decoded
	members   map[int64]int64 // of struct xdp_buff, those of struct xdp_md, for code that the kernel has translated
	netfilter *netWorld       // nil: the other side is the program for XDP
	assumed   []*smt.Term     // what the tables' proof, and the owners of the maps, promise
}

// otherFamily is whether an argument is not the family of the packet.
func (w *world) otherFamily(c *smt.Context, family *smt.Term) *smt.Term {
	return c.Not(c.Eq(c.Extract(family, 0, 32), c.Const(32, flag(w.decoded.kind.v6))))
}

// result is what a function returns, and whether its arguments are not those that the model has a meaning for.
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
	case image.ProvedInFrame, image.StrayInFrame, image.KnownInFrame:
		return m.Apply(name, 64, args[1]), w.otherFamily(m.Context, args[0])
	case image.DecideKnown, image.DecideUnknown:
		return m.Apply(name, 64, args[1:]...), w.otherFamily(m.Context, args[0])
	}
	return m.Apply(name, 64, args...), m.False()
}

// sourceIs is whether arguments are the source address.
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

// mine are the classes that the source may have: all that addresses of its family have.
func (w *world) mine() []uint16 { return w.classes.of(w.decoded.kind.v6) }

// class is the class of the source.
func (w *world) class(c *smt.Context) *smt.Term { return w.classAs(c, classVar(false)) }

// classAs is the class of an address, of which a variable says which it is.
func (w *world) classAs(c *smt.Context, variable string) *smt.Term {
	list := w.mine()
	values := make([]uint64, len(list))
	for i, class := range list {
		values[i] = uint64(class)
	}
	return c.Choice(c.Var(variable, 32), values, 64)
}

// inSets is whether an address is in any of some static sets, by the variable of its class; nil if the classes do not tell.
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
		case i == len(in): // as the choice of the class has it: what is above the last is the last
			is = c.ULE(c.Const(32, uint64(first)), index)
		case i-first > 1:
			is = c.And(c.ULE(c.Const(32, uint64(first)), index), c.ULT(index, c.Const(32, uint64(i))))
		}
		out = c.Or(out, is)
	}
	return out
}

// hostNumber is the number of the source in the hash of hosts: permuted() of bpf/classify.h.
func (w *world) hostNumber(c *smt.Context) *smt.Term {
	h := w.classes.hosts
	n := c.Mul(c.BitXor(w.decoded.joined(w.decoded.source), c.Const(32, uint64(h.Key))), c.Const(32, uint64(h.Factor)))
	n = c.BitXor(n, c.Lshr(n, c.Const(32, 16)))
	return c.Mul(n, c.Const(32, addrs.HostFactor))
}

func (w *world) assume(t *smt.Term) { w.assumed = append(w.assumed, t) }
