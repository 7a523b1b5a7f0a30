// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/compile/image"
)

// Members of struct xdp_md of the kernel's include/uapi/linux/bpf.h.
const (
	contextData    = 0
	contextDataEnd = 4
	contextMeta    = 8
)

func (m *machine) load(at int, s *state, in *asm.Instruction) {
	from := s.regs[in.Src]
	size := in.OpCode.Size().Sizeof()
	if in.OpCode.Mode() != asm.MemMode || !from.isPointer() || from.null != nil || size < 1 {
		m.fault(at, s.cond, "a load from what is no address")
		return
	}
	v, why := m.read(at, s, from, int64(in.Offset), size)
	if v.t == nil {
		m.fault(at, s.cond, "%s", why)
		return
	}
	s.regs[in.Dst] = v
	m.to(at+1, s)
}

// read reads a value at an address.
func (m *machine) read(at int, s *state, from value, offset int64, size int) (v value, why string) {
	place := m.Add(from.t, m.Const(64, uint64(offset)))
	fixed, ok := place.IsConst()
	switch from.of.kind {
	case inContext:
		if member, translated := m.world.members[int64(fixed)]; ok && translated && size == 8 {
			return m.readContext(member)
		}
		if !ok || size != 4 || m.world.members != nil {
			break
		}
		return m.readContext(int64(fixed))
	case inFrame:
		return m.readFrame(at, s, place, size), ""
	case inStack:
		if slot, written := s.stack[int(int64(fixed))]; ok && written && slot.size == size {
			return slot.value, ""
		}
		return value{}, "the stack is read where nothing of this size was written"
	case inPacket:
		if !ok {
			break
		}
		return m.rules.readPacket(s, int64(fixed), size)
	case inArray:
		if m.rules != nil {
			return m.rules.readTable(m, at, s, from.of.name, place, size)
		}
		return value{t: m.ZExt(m.readArray(from.of.name, place, size), 64)}, ""
	case inElement:
		if m.rules != nil {
			return m.rules.readElement(m, at, s, from.of, place, size)
		}
		if from.of.name == image.Counters {
			return m.readCounter(s, place, size)
		}
		if from.of.name == image.Hosts4 && size == 2 {
			return m.hostClass(at, s, from.of.key, place), ""
		}
		name := fmt.Sprintf("%s.%d", from.of.name, size)
		return value{t: m.ZExt(m.Apply(name, uint8(8*size), from.of.key, place), 64)}, ""
	}
	return value{}, "a load that this model does not know"
}

func (m *machine) readContext(member int64) (value, string) {
	frame := &region{kind: inFrame}
	switch member {
	case contextData:
		return value{t: m.Const(64, 0), of: frame}, ""
	case contextDataEnd:
		return value{t: m.frame.length, of: frame}, ""
	case contextMeta: // in front of the frame, if the frame carries a question
		return value{t: m.Ite(m.Var("question", 0), m.Const(64, ^uint64(0)-23), m.Const(64, 0)), of: frame}, ""
	}
	return value{}, "a member of the context that this model does not know"
}

// readFrame reads bytes of the frame. If the frame may end before these bytes, the read is a fault.
func (m *machine) readFrame(at int, s *state, place *smt.Term, size int) value {
	fixed, ok := place.IsConst()
	if cond, a, b, isChoice := place.Choice(); isChoice { // the offset differs between frames with and without a VLAN tag
		taken, other := *s, *s
		taken.cond, other.cond = m.And(s.cond, cond), m.And(s.cond, m.Not(cond))
		return value{t: m.Ite(cond, m.readFrame(at, &taken, a, size).t, m.readFrame(at, &other, b, size).t)}
	}
	if !ok { // arbitrary bytes, because the content of the frame determines the offset
		end := m.Add(place, m.Const(64, uint64(size)))
		m.fault(at, m.And(s.cond, m.Or(m.ULT(m.frame.length, end), m.ULT(end, place))), "a read behind the end of the frame")
		return value{t: m.ZExt(m.nearPlaces(place, size), 64)}
	}
	if int64(fixed) < 0 {
		m.fault(at, s.cond, "a read in front of the frame")
		return value{t: m.Const(64, 0)}
	}
	end := int(fixed) + size
	if end > s.least {
		m.fault(at, m.And(s.cond, m.ULT(m.frame.length, m.Const(64, uint64(end)))), "a read behind the end of the frame")
	}
	return value{t: m.ZExt(m.frame.load(int(fixed), size), 64)}
}

// nearPlaces returns the bytes at an offset that is a constant plus a byte of the frame. For small values of that byte, they are the frame's bytes;
// for other values they are arbitrary.
func (m *machine) nearPlaces(place *smt.Term, size int) *smt.Term {
	const near = 32
	out := m.Fresh("bytes", uint8(8*size))
	if place.Op != smt.OpAdd || place.Args[0].Ones() > 0xff {
		return out
	}
	if from, ok := place.Args[1].IsConst(); ok && from < 1<<16 {
		for n := range near {
			out = m.Ite(m.Eq(place.Args[0], m.Const(64, uint64(n))), m.frame.load(int(from)+n, size), out)
		}
	}
	return out
}

// hostClass reads the class of a slot in a wide line of hosts. The code must have compared the number in the slot with the source's number. The class
// is then that of the source, as the proof of the tables has shown, or the slot is empty.
func (m *machine) hostClass(at int, s *state, key, place *smt.Term) value {
	w := m.world
	n := w.hostNumber(m.Context)
	spread := m.ZExt(m.Mul(n, m.Const(32, 0x9e3779b1)), 64)
	line := m.Extract(m.Lshr(m.Mul(spread, m.Const(64, uint64(w.classes.hosts.Wide))), m.Const(64, 32)), 0, 32)
	element := func(at *smt.Term) *smt.Term { return m.Apply(image.Hosts4+".4", 32, key, at) }
	scaled := m.ZExt(m.Mul(element(m.Const(64, wideFactor)), n), 64)
	slot := m.Lshr(m.Mul(scaled, m.Const(64, wideSlots)), m.Const(64, 32))
	right := m.And(
		m.Eq(key, line), m.Eq(place, m.Add(m.Shl(slot, m.Const(64, 1)), m.Const(64, wideClass))),
		m.Eq(element(m.Shl(slot, m.Const(64, 2))), n), w.inBlocks(m.Context), m.Bool(w.classes.hosts.Narrow == 0),
	)
	m.fault(at, m.And(s.cond, m.Not(right)), "a class is read that is not the source's")
	return value{t: m.Ite(m.Var("host_slot_empty", 0), m.Const(64, 0), w.class(m.Context))}
}

// mostExceptions is the largest number of array entries that may differ from the most frequent value. With more, the array cannot be a single
// formula.
const mostExceptions = 256

// readArray reads the value of an array. The content of frozen maps is known. In other memory, equal offsets have equal content.
func (m *machine) readArray(name string, place *smt.Term, size int) *smt.Term {
	content := m.world.content[name]
	width := uint8(8 * size)
	at := func(place uint64) uint64 {
		if place > uint64(len(content)) || uint64(len(content))-place < uint64(size) {
			return 0
		}
		switch size {
		case 1:
			return uint64(content[place])
		case 2:
			return uint64(binary.NativeEndian.Uint16(content[place:]))
		case 4:
			return uint64(binary.NativeEndian.Uint32(content[place:]))
		}
		return binary.NativeEndian.Uint64(content[place:])
	}
	if content == nil {
		return m.Apply(fmt.Sprintf("%s.%d", name, size), width, place)
	}
	if mapped := m.Map(place, width, at); mapped != nil {
		return mapped
	}
	if t := m.sparse(name, content, place, size, at); t != nil {
		return t
	}
	return m.Apply(fmt.Sprintf("%s.%d", name, size), width, place)
}

// sparse returns the formula for a read from a sparse array: at most mostExceptions of its entries are not 0. It returns nil for other arrays and for
// large arrays.
func (m *machine) sparse(_ string, content []byte, place *smt.Term, size int, at func(uint64) uint64) *smt.Term {
	if len(content) > 1<<20 {
		return nil
	}
	out, n := m.Const(uint8(8*size), 0), 0
	for i := 0; i+size <= len(content); i += size {
		v := at(uint64(i))
		if v == 0 {
			continue
		}
		if n++; n > mostExceptions {
			return nil
		}
		out = m.Ite(m.Eq(place, m.Const(64, uint64(i))), m.Const(uint8(8*size), v), out)
	}
	return out
}

// readCounter reads the packets or the bytes of the last counter that was looked up.
func (m *machine) readCounter(s *state, place *smt.Term, size int) (value, string) {
	at, ok := place.IsConst()
	if !ok || size != 8 && size != 4 || at != 0 && at != 8 {
		return value{}, "a read beside a counter"
	}
	return value{t: m.ZExt(m.Extract(s.counted.now[at/8], 0, uint8(8*size)), 64)}, ""
}

func (m *machine) store(at int, s *state, in *asm.Instruction) {
	to := s.regs[in.Dst]
	size := in.OpCode.Size().Sizeof()
	v := s.regs[in.Src]
	if in.OpCode.Class() == asm.StClass {
		v = value{t: m.Const(64, uint64(in.Constant))}
	}
	switch {
	case in.OpCode.Mode() != asm.MemMode || !to.isPointer() || to.null != nil || size < 1:
		m.fault(at, s.cond, "a store to what is no address")
		return
	case v.t == nil:
		m.fault(at, s.cond, "a register is stored that was not written")
		return
	}
	place := m.Add(to.t, m.Const(64, uint64(int64(in.Offset))))
	fixed, ok := place.IsConst()
	switch {
	case to.of.kind == inArray && to.of.name == image.Newcomers && size == 2: // the value is for later packets: nothing reads it again for this packet
	case !ok:
		m.fault(at, s.cond, "a store at a place that is not fixed")
		return
	case to.of.kind == inStack && int64(fixed) >= -512 && int64(fixed)+int64(size) <= 0:
		m.storeStack(s, int(int64(fixed)), size, v)
	case to.of.kind == inPacket && m.rules.storePacket(s, int64(fixed), size, v):
	case to.of.kind == inElement && to.of.name == image.Counters && size == 8 && (fixed == 0 || fixed == 8) && v.isNumber():
		s.counted.now[fixed/8] = v.t
	case to.of.kind == inElement && to.of.name == image.HostsFound: // the value is only a hint for the next lookup
	default:
		m.fault(at, s.cond, "a store that this program may not do")
		return
	}
	m.to(at+1, s)
}

// storeStack writes a slot of the stack. Other slots that overlap the written one become unknown.
func (m *machine) storeStack(s *state, at, size int, v value) {
	for place, other := range s.stack {
		if place < at+size && at < place+other.size {
			delete(s.stack, place)
		}
	}
	if v.isNumber() {
		v.t = m.ZExt(m.Extract(v.t, 0, uint8(8*size)), 64)
	}
	s.stack[at] = slot{size, v}
}
