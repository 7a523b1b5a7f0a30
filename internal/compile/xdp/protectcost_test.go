// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"encoding/binary"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/test/subject"
)

// BenchmarkProtect measures the cost of a packet of a flood, with BPF_PROG_TEST_RUN: with a protection that always answers, and with a program that
// drops all packets.
func BenchmarkProtect(b *testing.B) {
	const rounds = 20 // the fastest round is reported, because other programs also use the machine
	drop := program(b, asm.Mov.Imm(asm.R0, xdpDrop), asm.Return())
	s := loadShield(b, protecting(always()))
	without := protecting(always())
	without.Protections, without.Rules[0].Protect = nil, 0
	x, err := xdpgen.Generate(without, xdpgen.Options{})
	if err != nil {
		b.Fatal(err)
	}
	rule := (&subject.Subject{Program: without}).Load(b, x)
	pad := " payload=0x00000000000000000000000000000000"
	stamped := ack{route: routes[0], port: 4000, server: 80, stamped: true, tsecr: uint32(s.now >> 32 << 12)}.String() + pad
	for _, c := range []struct {
		name, line string
		program    *ebpf.Program
	}{
		{"drop", "tcp 198.51.100.7:4000 > 192.0.2.1:80 .", drop},
		{"rule", "tcp 198.51.100.7:4000 > 192.0.2.1:80 .", rule.Native()},
		{"ack", "tcp 198.51.100.7:4000 > 192.0.2.1:80 . tcpopts=none", s.Native()},
		{"ack-stamped", stamped, s.Native()},
		{"ack6", "tcp [2001:db8::7]:4000 > [2001:db8:1::1]:80 . tcpopts=none", s.Native()},
		{"syn", "tcp 198.51.100.7:4000 > 192.0.2.1:80 S tcpopts=" + linux.options(), s.Native()},
		{"tx", "tcp 198.51.100.7:4000 > 192.0.2.1:80 S tcpopts=" + linux.options(), program(b, asm.Mov.Imm(asm.R0, xdpTX), asm.Return())},
	} {
		frame := subject.FramesOf(b, c.line)[0].Frame
		if c.name == "syn" || c.name == "tx" {
			c.program = rewritten(b, c.program, frame)
		}
		b.Run(c.name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			least := time.Duration(math.MaxInt64)
			for range rounds {
				start := clock(b, unix.CLOCK_THREAD_CPUTIME_ID)
				if _, err := c.program.Run(&ebpf.RunOptions{Data: frame, Repeat: uint32(b.N)}); err != nil {
					b.Fatal(err)
				}
				least = min(least, clock(b, unix.CLOCK_THREAD_CPUTIME_ID)-start)
			}
			b.ReportMetric(float64(least)/float64(b.N), "cpu-ns/op")
		})
	}
}

// program loads an XDP program.
func program(t testing.TB, code ...asm.Instruction) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, Instructions: code, License: "GPL",
		AttachType: ebpf.AttachXDP, Flags: unix.BPF_F_XDP_HAS_FRAGS})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// before returns a program that writes to the frame, to which R7 points, and passes it to another program.
func before(t testing.TB, next *ebpf.Program, bytes int, write ...asm.Instruction) *ebpf.Program {
	t.Helper()
	programs, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { programs.Close() })
	if err := programs.Put(uint32(0), next); err != nil {
		t.Fatal(err)
	}
	code := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R7, asm.R6, 0, asm.Word), // data
		asm.LoadMem(asm.R8, asm.R6, 4, asm.Word), // data_end
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.Add.Imm(asm.R1, int32(bytes)),
		asm.JGT.Reg(asm.R1, asm.R8, "out"),
	}
	code = append(code, write...)
	return program(t, append(code,
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.LoadMapPtr(asm.R2, programs.FD()),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	)...)
}

// rewritten returns a program that restores a frame before it passes it to another program, because the answer overwrites the frame.
func rewritten(t testing.TB, next *ebpf.Program, frame []byte) *ebpf.Program {
	t.Helper()
	var write asm.Instructions
	for at := 0; at+4 <= len(frame); at += 4 {
		write = append(write, asm.StoreImm(asm.R7, int16(at), int64(int32(binary.NativeEndian.Uint32(frame[at:]))), asm.Word))
	}
	return before(t, next, len(frame), write...)
}
