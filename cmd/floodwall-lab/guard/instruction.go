// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// instruction is struct bpf_insn of linux/bpf.h. A load of a 64-bit constant takes two. The imm of the second one is the upper half.
type instruction struct {
	code     asm.OpCode
	dst, src uint8
	off      int16
	imm      int32
}

const instructionSize = 8

// The values of src in calls and loads of 64-bit constants.
const (
	pseudoMap      = 1 // of a load: imm is the identifier of a map
	pseudoMapValue = 2 // of a load: an address in the single value of a map
	pseudoCall     = 1 // of a call: of a function of the program
)

// decode reads instructions in the byte order of this machine.
func decode(raw []byte) []instruction {
	all := make([]instruction, len(raw)/instructionSize)
	for n := range all {
		b := raw[n*instructionSize:]
		all[n] = instruction{
			code: asm.OpCode(b[0]), dst: b[1] & 0xf, src: b[1] >> 4,
			off: int16(binary.NativeEndian.Uint16(b[2:])), imm: int32(binary.NativeEndian.Uint32(b[4:])),
		}
	}
	return all
}

// programInfo is the beginning of struct bpf_prog_info of linux/bpf.h. The library cannot return the raw instructions: it refuses calls of functions
// in kernel modules, because it interprets their distance as the mark of another platform.
type programInfo struct {
	kind, id     uint32
	tag          [8]byte
	jitedLength  uint32
	length       uint32 // of the translated instructions, in bytes
	jited        uint64
	instructions uint64 // where to write them
}

// translated returns the kernel's translated instructions of a program. If there are none, the caller lacks the right to read them, which is an
// error.
func translated(p *ebpf.Program) ([]instruction, error) {
	var pinned runtime.Pinner
	defer pinned.Unpin()
	info := &programInfo{}
	pinned.Pin(info)
	if err := objectInfo(p, info); err != nil {
		return nil, err
	}
	raw := make([]byte, max(instructionSize, info.length))
	pinned.Pin(&raw[0])
	*info = programInfo{length: info.length, instructions: uint64(uintptr(unsafe.Pointer(&raw[0])))}
	if err := objectInfo(p, info); err != nil {
		return nil, err
	}
	if info.length == 0 || info.instructions == 0 {
		return nil, fmt.Errorf("the kernel does not show the instructions of program %d: that takes root's rights, and "+
			"sysctl net.core.bpf_jit_harden of at most 1", info.id)
	}
	return decode(raw), nil
}

// objectInfo asks the kernel about a program. The memory that info refers to must be pinned.
func objectInfo(p *ebpf.Program, info *programInfo) error {
	attr := struct {
		fd, length uint32
		info       uint64
	}{uint32(p.FD()), uint32(unsafe.Sizeof(*info)), uint64(uintptr(unsafe.Pointer(info)))}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_OBJ_GET_INFO_BY_FD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(p)
	if errno != 0 {
		return fmt.Errorf("instructions of a program: %w", errno)
	}
	return nil
}
