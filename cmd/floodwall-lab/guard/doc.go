// SPDX-License-Identifier: Apache-2.0

// Package guard limits the number of executed instructions for each kind of packet. An interpreter runs the loaded program like the kernel and counts
// exactly. It measures no time.
//
// The instructions are the translated ones that the kernel returns (xlated_prog_insns of struct bpf_prog_info). Dead code is removed, constants are
// in place, lookups in arrays are inlined, and accesses to struct xdp_md are accesses to struct xdp_buff; at tc, those to struct __sk_buff are to struct sk_buff. The
// JIT compiler makes machine code of exactly these instructions. So a load of a 64-bit constant counts as one.
//
// Maps are those of the loaded program. Reads see the kernel's content. Writes stay in the machine, where later packets see them, until Forget: a
// machine never changes the state that it measures.
//
// The kernel functions that a program calls are emulated. If the result of a function depends on state outside of program and maps, it is fixed, see
// functions.go. Unknown functions and instructions are errors.
//
//	m, err := guard.OpenProgram(loaded)
//	result, err := m.Run(frame) // instructions, loads, stores and calls, exactly
package guard
