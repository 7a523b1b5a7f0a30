// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// promises returns assumptions about memory that the code reads. For tables, the proof of the tables guarantees the assumptions. For memory that
// changes while the program runs, the code that writes the memory guarantees them.
func (w *world) promises(c *smt.Context) *smt.Term {
	w.assumed = nil
	if w.decoded.kind.v6 {
		w.filter6(c)
	} else {
		w.filter4(c)
	}
	w.dynamicMarks(c)
	w.reflectors(c)
	if w.decoded.kind.proto == protoUDP {
		w.floods(c)
	}
	return c.And(w.assumed...)
}

// array returns the value of a map that machine.readArray reads.
func (w *world) array(c *smt.Context, name string, at *smt.Term, size int) *smt.Term {
	return (&machine{Context: c, world: w}).readArray(name, at, size)
}

// bitOf returns a bit of a bitmap of 64-bit words.
func (w *world) bitOf(c *smt.Context, bitmap string, bit *smt.Term, mask uint64) *smt.Term {
	at := c.Shl(c.BitAnd(c.Lshr(bit, c.Const(64, 6)), c.Const(64, mask)), c.Const(64, 3))
	word := w.array(c, bitmap, at, 8)
	return c.Eq(c.Extract(c.Lshr(word, c.BitAnd(bit, c.Const(64, 63))), 0, 1), c.Const(1, 1))
}

// unlisted returns a formula that holds if the source has class 0.
func (w *world) unlisted(c *smt.Context) *smt.Term { return c.Eq(w.class(c), c.Const(64, 0)) }

func (w *world) filter4(c *smt.Context) {
	if w.tables.empty(false) {
		return
	}
	d := w.decoded
	first := c.False() // holds if no address with the source's first byte has a class
	for b := 0; b < 256; b++ {
		end := b
		for end < 256 && !w.classes.first4[end] {
			end++
		}
		if end > b {
			in := c.And(c.ULE(c.Const(8, uint64(b)), d.source[0]), c.ULE(d.source[0], c.Const(8, uint64(end-1))))
			first = c.Or(first, in)
			b = end
		}
	}
	w.assume(c.Implies(first, w.unlisted(c)))
	a := c.ZExt(d.joined(d.source), 64)
	t := w.tables
	in := c.False()
	if mask := t.number("filter4_mask"); mask != 0 {
		in = w.bitOf(c, image.Filter4, c.Lshr(a, c.Const(64, uint64(t.number("filter4_shift")))), uint64(mask))
		if t.set("filter4_hosts") {
			w.assume(c.Implies(c.Not(in), w.unlisted(c)))
		}
	}
	if filter := t.number("hosts4_filter"); filter != 0 {
		n := w.hostNumber(c)
		at := c.Lshr(c.Mul(c.ZExt(n, 64), c.Const(64, uint64(filter))), c.Const(64, 32))
		word := w.array(c, image.HostFilter4, c.Shl(at, c.Const(64, 3)), 8)
		bits := c.Mul(n, c.Const(32, 0x9e3779b1))
		one := c.Lshr(word, c.ZExt(c.Extract(bits, 26, 6), 64))
		two := c.Lshr(word, c.ZExt(c.Extract(bits, 20, 6), 64))
		may := c.And(c.Eq(c.Extract(one, 0, 1), c.Const(1, 1)), c.Eq(c.Extract(two, 0, 1), c.Const(1, 1)))
		w.assume(c.Implies(c.And(c.Not(in), c.Not(may)), w.unlisted(c)))
	}
}

func (w *world) filter6(c *smt.Context) {
	if w.tables.empty(true) {
		return
	}
	bit := c.Lshr(c.Mul(c.ZExt(w.decoded.joined(w.decoded.source[:4]), 64), c.Const(64, 0x9e3779b97f4a7c15)), c.Const(64, 44))
	w.assume(c.Implies(c.Not(w.bitOf(c, image.Filter6, bit, 1<<14-1)), w.unlisted(c)))
}

// dynamicMarks adds the guarantees of the owners of dynamic sets (internal/model/addrs/marks.go, own.go). An address without a mark is in no set. An
// address that is marked as the host's own is in the set of own addresses.
func (w *world) dynamicMarks(c *smt.Context) {
	d := w.decoded
	local, hasLocal := w.local()
	for _, a := range [][]*smt.Term{d.source, d.dest} {
		hi, lo := d.halves(a)
		last := c.Concat(a[len(a)-1], a[len(a)-2]) // the marks as a little-endian machine loads them
		at := c.Add(c.Lshr(c.ZExt(last, 64), c.Const(64, addrs.MarkShift)), c.Const(64, uint64(w.marksAt)))
		marks := w.array(c, image.DynamicInfo, at, 1)
		for _, number := range w.dynamic {
			member := c.Apply("member", 0, c.Const(32, uint64(number)), hi, lo)
			w.assume(c.Implies(member, c.Eq(c.Extract(marks, uint8(number), 1), c.Const(1, 1))))
		}
		if !hasLocal {
			continue
		}
		shown := c.False()
		if d.kind.v6 {
			for i := range addrs.OwnIPv6 {
				from := uint64(image.OwnOffset + addrs.OwnIPv6From + 16*i)
				one := c.Eq(w.array(c, image.DynamicInfo, c.Const(64, from), 8), c.Swap(hi))
				two := c.Eq(w.array(c, image.DynamicInfo, c.Const(64, from+8), 8), c.Swap(lo))
				shown = c.Or(shown, c.And(one, two, c.Not(c.Eq(hi, c.Const(64, 0)))))
			}
		} else {
			addr := c.Swap(d.joined(a))
			for i := range addrs.OwnIPv4 {
				own := w.array(c, image.DynamicInfo, c.Const(64, uint64(image.OwnOffset+4*i)), 4)
				shown = c.Or(shown, c.And(c.Eq(own, addr), c.Not(c.Eq(addr, c.Const(32, 0)))))
			}
		}
		w.assume(c.Implies(shown, c.Apply("member", 0, c.Const(32, uint64(local)), hi, lo)))
	}
}

// local returns the number of the set of the host's own addresses.
func (w *world) local() (number int, ok bool) {
	for set, number := range w.dynamic {
		if w.program.Sets[set].Dynamic.Local {
			return number, true
		}
	}
	return 0, false
}

// inBlocks returns a formula that holds if the bitmap of blocks contains the source. In that case the code does not look up the source's class in the
// hash of hosts.
func (w *world) inBlocks(c *smt.Context) *smt.Term {
	mask := w.tables.number("filter4_mask")
	if mask == 0 {
		return c.False()
	}
	a := c.ZExt(w.decoded.joined(w.decoded.source), 64)
	return w.bitOf(c, image.Filter4, c.Lshr(a, c.Const(64, uint64(w.tables.number("filter4_shift")))), uint64(mask))
}

// reflectors adds the assumption that the table of reflectors has all ports of reflectors, and port 0.
func (w *world) reflectors(c *smt.Context) {
	content := w.content[image.Reflectors]
	if w.decoded.kind.proto != protoUDP || content == nil {
		return
	}
	const factor, shift = 0x9e3779b9, 20
	port := w.decoded.frame.load(w.decoded.payload, 2)
	listed := c.False()
	for _, p := range append([]uint16{0}, packet.ReflectorPorts...) {
		p = p>>8 | p<<8
		at := uint32(p) * factor >> shift
		if int(at) >= len(content) || content[at] == 0 {
			return // no assumption is needed
		}
		listed = c.Or(listed, c.Eq(port, c.Const(16, uint64(p))))
	}
	at := c.ZExt(c.Lshr(c.Mul(c.ZExt(port, 32), c.Const(32, factor)), c.Const(32, shift)), 64)
	w.assume(c.Implies(listed, c.Not(c.Eq(w.array(c, image.Reflectors, at, 1), c.Const(8, 0)))))
}
