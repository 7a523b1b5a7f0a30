// Package guard holds the executed instructions of each kind of packet under bounds. An interpreter runs the loaded
// program as the kernel does and counts exactly. It measures no time.
//
// The instructions are the translated ones that the kernel hands out (xlated_prog_insns of struct bpf_prog_info): dead code
// is gone, constants are in place, lookups in arrays are inlined, and accesses to struct xdp_md are accesses to struct
// xdp_buff. The JIT compiler makes machine code of exactly these. So a load of a 64-bit constant counts as one.
//
// Maps are those of the loaded program. Reads see what the kernel has in them. Writes stay in the machine, where later
// packets see them, until Forget: a machine never changes what it measures.
//
// What a program calls in the kernel is emulated. Functions whose effect or answer lies outside of program and maps have a
// fixed answer, see functions.go. Whatever is not known is an error.
//
//	m, err := guard.OpenProgram(loaded)
//	result, err := m.Run(frame) // instructions, loads, stores and calls, exactly
package guard
