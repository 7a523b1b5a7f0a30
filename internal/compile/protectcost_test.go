package compile_test

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile"
)

// BenchmarkProtect says what a packet of a flood costs in a protection that always answers, beside a program that drops
// all, by BPF_PROG_TEST_RUN.
func BenchmarkProtect(b *testing.B) {
	const rounds = 20 // of which the fastest counts: others use the machine, too
	drop, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpDrop), asm.Return()}})
	if err != nil {
		b.Fatal(err)
	}
	defer drop.Close()
	s := loadShield(b, protecting(always()))
	without := protecting(always())
	without.Protections, without.Rules[0].Protect = nil, 0
	x, err := compile.ToXDP(without, compile.XDPOptions{})
	if err != nil {
		b.Fatal(err)
	}
	rule := (&subject{program: without}).load(b, x)
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
	} {
		frame := framesOf(b, c.line)[0].frame
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
