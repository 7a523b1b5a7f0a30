// SPDX-License-Identifier: Apache-2.0

package guard_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/guard"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestArithmetic runs random programs on random frames, and compares with the kernel. They use all operations, jumps, sizes of loads and stores, and
// atomic operations of RFC 9669.
func TestArithmetic(t *testing.T) {
	testutil.RequireRoot(t)
	r := testutil.Random(t)
	for range testutil.Scaled(40, 2000) {
		g := generator{r: r}
		p := load(t, g.program())
		m := open(t, p)
		for range 5 {
			frame := make([]byte, 8*len(scalars))
			for i := range frame {
				frame[i] = byte(r.Uint32() >> (8 * r.UintN(4))) // small numbers are frequent
			}
			agree(t, m, p, frame)
		}
		if t.Failed() {
			t.Fatalf("%v", g.instructions(t))
		}
		m.Close()
		p.Close()
	}
}

// scalars are the registers that random programs compute with. Register 6 has the context.
var scalars = []int{0, 2, 3, 4, 5, 7, 8, 9}

// generator makes a program.
type generator struct {
	r   *rand.Rand
	raw []byte
}

// emit appends an instruction.
func (g *generator) emit(code, dst, src, off, imm int) {
	g.raw = append(g.raw, byte(code), byte(dst|src<<4))
	g.raw = binary.LittleEndian.AppendUint16(g.raw, uint16(off))
	g.raw = binary.LittleEndian.AppendUint32(g.raw, uint32(imm))
}

func (g *generator) scalar() int { return scalars[g.r.IntN(len(scalars))] }

func pick[T any](g *generator, list ...T) T { return list[g.r.IntN(len(list))] }

// frame makes register 2 point to a frame with a word for each scalar.
func (g *generator) frame() {
	g.emit(0x61, 2, 6, 0, 0) // data
	g.emit(0x61, 3, 6, 4, 0) // data_end
	g.emit(0xbf, 4, 2, 0, 0)
	g.emit(0x07, 4, 0, 0, 8*len(scalars))
	g.emit(0xbd, 4, 3, 2, 0) // continues if the frame is complete
	g.emit(0xb7, 0, 0, 0, 0)
	g.emit(0x95, 0, 0, 0, 0)
}

// program fills the scalars from the frame, computes, and writes the result into the frame.
func (g *generator) program() []byte {
	g.emit(0xbf, 6, 1, 0, 0)
	g.frame()
	for i, r := range scalars {
		if r != 2 {
			g.emit(0x79, r, 2, 8*i, 0)
		}
	}
	g.emit(0x79, 2, 2, 8, 0)
	for i := range 4 {
		g.emit(0x7b, 10, g.scalar(), -8*(i+1), 0)
	}
	for range 60 {
		g.operation()
	}
	for i := range 4 {
		g.emit(0x79, 2, 10, -8*(i+1), 0)
		g.emit(0xaf, 0, 2, 0, 0)
		g.emit(0x27, 0, 0, 0, 31)
	}
	for _, r := range scalars[2:] {
		g.emit(0xaf, 0, r, 0, 0)
		g.emit(0x27, 0, 0, 0, 31)
	}
	g.emit(0xbf, 7, 0, 0, 0)
	g.frame()
	g.emit(0x7b, 2, 7, 0, 0)
	g.emit(0xb7, 0, 0, 0, 2)
	g.emit(0x95, 0, 0, 0, 0)
	return g.raw
}

func (g *generator) operation() {
	switch g.r.IntN(8) {
	case 0:
		g.jump()
	case 1:
		g.memory()
	case 2:
		g.atomic()
	case 3:
		g.emit(pick(g, 0xd4, 0xdc, 0xd7), g.scalar(), 0, 0, pick(g, 16, 32, 64)) // le, be, bswap
	case 4:
		g.emit(0xbf, g.scalar(), g.scalar(), pick(g, 8, 16, 32), 0) // moves with sign extension
		g.emit(0xbc, g.scalar(), g.scalar(), pick(g, 8, 16), 0)
	default:
		g.alu()
	}
}

func (g *generator) alu() {
	class, op := pick(g, 4, 7), pick(g, 0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x90, 0xa0, 0xb0, 0xc0)
	off := 0
	if op == 0x30 || op == 0x90 {
		off = g.r.IntN(2) // signed
	}
	switch shift := op == 0x60 || op == 0x70 || op == 0xc0; {
	case op == 0x80:
		g.emit(class|op, g.scalar(), 0, 0, 0)
	case g.r.IntN(2) == 0:
		g.emit(class|op|8, g.scalar(), g.scalar(), off, 0)
	case shift:
		g.emit(class|op, g.scalar(), 0, 0, g.r.IntN(32))
	default:
		g.emit(class|op, g.scalar(), 0, off, int(int32(g.r.Uint32()>>g.r.IntN(32)|1)))
	}
}

// jump emits a conditional jump over one instruction.
func (g *generator) jump() {
	op := pick(g, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0xa0, 0xb0, 0xc0, 0xd0) | pick(g, 5, 6)
	if g.r.IntN(2) == 0 {
		g.emit(op|8, g.scalar(), g.scalar(), 1, 0)
	} else {
		g.emit(op, g.scalar(), 0, 1, int(int32(g.r.Uint32()>>g.r.IntN(32))))
	}
	g.emit(0x07, g.scalar(), 0, 0, 1+g.r.IntN(100))
}

// memory loads or stores at the stack.
func (g *generator) memory() {
	size := g.r.IntN(4)
	bytes, code := []int{4, 2, 1, 8}[size], size<<3
	at := -32 + bytes*g.r.IntN(32/bytes)
	switch g.r.IntN(4) {
	case 0:
		g.emit(0x61|code, g.scalar(), 10, at, 0)
	case 1:
		g.emit(0x63|code, 10, g.scalar(), at, 0)
	case 2:
		g.emit(0x62|code, 10, 0, at, int(int32(g.r.Uint32())))
	default:
		if bytes == 8 {
			bytes, code = 4, 0
		}
		g.emit(0x81|code, g.scalar(), 10, at&^(bytes-1), 0) // with sign extension
	}
}

func (g *generator) atomic() {
	op := pick(g, 0x00, 0x40, 0x50, 0xa0, 0x01, 0x41, 0x51, 0xa1, 0xe1, 0xf1)
	code, at := 0xdb, -8*(1+g.r.IntN(4))
	if g.r.IntN(2) == 0 {
		code, at = 0xc3, at+4*g.r.IntN(2)
	}
	if op == 0xf1 && g.r.IntN(2) == 0 { // makes the values equal at times
		g.emit(map[int]int{0xdb: 0x79, 0xc3: 0x61}[code], 0, 10, at, 0)
	}
	g.emit(code, 10, g.scalar(), at, op)
}

func (g *generator) instructions(t *testing.T) asm.Instructions {
	t.Helper()
	all, err := asm.AppendInstructions(nil, bytes.NewReader(g.raw), binary.LittleEndian, "linux")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func load(t *testing.T, raw []byte) *ebpf.Program {
	t.Helper()
	g := generator{raw: raw}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: g.instructions(t)})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	return p
}

func open(t *testing.T, p *ebpf.Program) *guard.Machine {
	t.Helper()
	m, err := guard.OpenProgram(p)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// agree runs a frame in the machine and then in the kernel, and compares the results.
func agree(t *testing.T, m *guard.Machine, p *ebpf.Program, frame []byte) {
	t.Helper()
	m.Forget()
	got, err := m.Run(frame)
	if err != nil {
		t.Errorf("frame %x: %v", frame, err)
		return
	}
	action, after, err := p.Test(frame)
	if err != nil {
		t.Fatalf("frame %x: %v", frame, err)
	}
	if got.Action != action || !bytes.Equal(got.Frame, after) {
		t.Errorf("frame %x: action %d, frame %x; in the kernel %d, %x", frame, got.Action, got.Frame, action, after)
	}
}
