// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// Syscalls counts the system calls of a process with a BPF program. The count is exact, and slows the process less than a tracer does. The returned
// function returns the counts up to that moment, by system call number.
func Syscalls(t *testing.T, pid int) func() map[uint64]uint64 {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal("counting system calls: ", err)
		}
	}
	must(rlimit.RemoveMemlock())
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: 512})
	must(err)
	var st unix.Stat_t
	must(unix.Stat("/proc/self/ns/pid", &st))
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "GPL", Instructions: countCalls(counts.FD(), uint32(pid), st.Dev, st.Ino)})
	must(err)
	at, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sys_enter", Program: program})
	must(err)
	t.Cleanup(func() { at.Close(); program.Close(); counts.Close() })
	return func() map[uint64]uint64 {
		calls := map[uint64]uint64{}
		var call, n uint64
		each := counts.Iterate()
		for each.Next(&call, &n) {
			calls[call] = n
		}
		must(each.Err())
		return calls
	}
}

// countCalls returns a program that counts system calls in a map. It counts the calls of the process with the given ID in the given PID namespace.
// The second argument of sys_enter is the number of the call (include/trace/events/syscalls.h).
func countCalls(counts int, pid uint32, dev, ino uint64) asm.Instructions {
	const info = -8 // struct bpf_pidns_info: pid, tgid
	const call, one = -16, -24
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadImm(asm.R1, int64(dev), asm.DWord),
		asm.LoadImm(asm.R2, int64(ino), asm.DWord),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, info),
		asm.Mov.Imm(asm.R4, 8),
		asm.FnGetNsCurrentPidTgid.Call(),
		asm.JNE.Imm(asm.R0, 0, "end"),
		asm.LoadMem(asm.R1, asm.RFP, info+4, asm.Word),
		asm.JNE.Imm(asm.R1, int32(pid), "end"),
		asm.LoadMem(asm.R1, asm.R6, 8, asm.DWord),
		asm.StoreMem(asm.RFP, call, asm.R1, asm.DWord),
		asm.LoadMapPtr(asm.R1, counts),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, call),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "first"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Ja.Label("end"),
		asm.Mov.Imm(asm.R1, 1).WithSymbol("first"),
		asm.StoreMem(asm.RFP, one, asm.R1, asm.DWord),
		asm.LoadMapPtr(asm.R1, counts),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, call),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, one),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnMapUpdateElem.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
	}
}
