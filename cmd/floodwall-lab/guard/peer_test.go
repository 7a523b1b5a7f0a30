// SPDX-License-Identifier: Apache-2.0

package guard_test

import (
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/guard"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestMaps runs programs with maps of the kernel's kinds. They must do the same in the machine and in the kernel, also in the maps.
func TestMaps(t *testing.T) {
	testutil.RequireRoot(t)
	for _, c := range []struct {
		program string
		fill    func(*ebpf.Map) error
		vars    map[string]any
		clock   bool // its maps hold times, which differ
	}{
		{program: rig.Touch},
		{program: rig.Least},
		{program: rig.Hash4, fill: func(m *ebpf.Map) error { return m.Put(listed.As4(), uint8(1)) }},
		{program: rig.LPM4, fill: func(m *ebpf.Map) error { return m.Put(append([]byte{8, 0, 0, 0}, listed.AsSlice()...), uint8(1)) }},
		{program: rig.Limit4, clock: true, vars: map[string]any{
			rig.Limit4Mask: ^uint32(0), rig.Limit4Interval: uint64(1e12), rig.Limit4Burst: uint64(5e12),
		}},
		{program: rig.Yardstick},
	} {
		t.Run(c.program, func(t *testing.T) {
			onCPU0(t)
			p, err := rig.LoadPeer(c.program, func(m *ebpf.MapSpec) { m.MaxEntries = 1000 }, c.vars)
			if err != nil {
				t.Fatal(err)
			}
			if c.fill != nil {
				if err := c.fill(p.Set); err != nil {
					t.Fatal(err)
				}
			}
			m := open(t, p.Program)
			defer m.Close()
			random := testutil.Random(t)
			hints := packet.Hints{Addrs: []netip.Prefix{netip.PrefixFrom(listed, 32)}}
			for range testutil.Scaled(200, 10_000) {
				agree(t, m, p.Program, packet.Random(random, hints))
				if differences, err := m.Differences(); err != nil || len(differences) > 0 && !c.clock {
					t.Errorf("%v %v", differences, err)
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}

var listed = netip.MustParseAddr("1.2.3.4")

// onCPU0 runs the test on the CPU whose part of per-CPU maps the machine has.
func onCPU0(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	var one unix.CPUSet
	one.Set(0)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
}

// TestWritesStay counts packets. The machine continues with its own counts, and the kernel's stay unchanged.
func TestWritesStay(t *testing.T) {
	testutil.RequireRoot(t)
	p, err := rig.LoadPeer(rig.Least, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := open(t, p.Program)
	defer m.Close()
	spec, err := packet.Parse("udp 9.9.9.9:4000 > 10.0.0.2:53 len=46")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := m.Run(spec.Frame()); err != nil {
			t.Fatal(err)
		}
	}
	if differences, err := m.Differences(); err != nil || len(differences) != 2 {
		t.Errorf("%v %v, want a byte of each of two counts", differences, err) // 3 packets, 180 bytes
	}
	m.Forget()
	if differences, err := m.Differences(); err != nil || len(differences) > 0 {
		t.Errorf("after Forget: %v %v", differences, err)
	}
}

// TestTailCall continues in another program, or after the call if there is none.
func TestTailCall(t *testing.T) {
	testutil.RequireRoot(t)
	target := load(t, []byte{0xb7, 0, 0, 0, 3, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0})
	programs, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer programs.Close()
	if err := programs.Put(uint32(1), target); err != nil {
		t.Fatal(err)
	}
	for index, want := range []guard.Counts{{Instructions: 5}, {Instructions: 5, Calls: 1}} {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{
			asm.LoadMapPtr(asm.R2, programs.FD()),
			asm.Mov.Imm(asm.R3, int32(index)),
			asm.FnTailCall.Call(),
			asm.Mov.Imm(asm.R0, 2),
			asm.Return(),
		}})
		if err != nil {
			t.Fatal(err)
		}
		m := open(t, p)
		agree(t, m, p, make([]byte, 60))
		if got, err := m.Run(make([]byte, 60)); err != nil || got.Counts != want {
			t.Errorf("index %d: %+v, %v, want %+v", index, got, err, want)
		}
		m.Close()
		p.Close()
	}
}

// TestUnknown checks that the machine returns errors for things that it does not support: it never guesses.
func TestUnknown(t *testing.T) {
	testutil.RequireRoot(t)
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{
		asm.FnGetNumaNodeId.Call(), asm.Mov.Imm(asm.R0, 2), asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	m := open(t, p)
	defer m.Close()
	const want = "instruction 0: a call of bpf_get_numa_node_id, which is not emulated"
	if _, err := m.Run(make([]byte, 60)); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	for _, length := range []int{0, 13, 4000} {
		if _, err := m.Run(make([]byte, length)); err == nil || !strings.Contains(err.Error(), "must be 14 to 3520") {
			t.Errorf("a frame of %d bytes: %v", length, err)
		}
	}
}
