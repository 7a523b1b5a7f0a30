// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf/asm"
)

// The offsets that change an operation.
const (
	offSigned = 1  // of division
	offPerCPU = -1 // of a move in translated programs: the address of this CPU's part (BPF_ADDR_PERCPU of linux/filter.h)
)

// alu returns the result of an instruction for its operands.
func alu(i instruction, dst, src uint64) (uint64, error) {
	if i.code.ALUOp() == asm.Swap {
		return swap(i, dst)
	}
	if i.off != 0 && !(i.off == offSigned && (i.code.ALUOp() == asm.Div || i.code.ALUOp() == asm.Mod)) && i.code.ALUOp() != asm.Mov {
		return 0, fmt.Errorf("unknown offset %d of operation %v", i.off, i.code)
	}
	if i.code.Class() == asm.ALU64Class {
		return alu64(i, dst, src)
	}
	v, err := alu32(i, uint32(dst), uint32(src))
	return uint64(v), err
}

func alu64(i instruction, dst, src uint64) (uint64, error) {
	switch i.code.ALUOp() {
	case asm.Add:
		return dst + src, nil
	case asm.Sub:
		return dst - src, nil
	case asm.Mul:
		return dst * src, nil
	case asm.Div, asm.Mod:
		return divide(i, dst, src, int64(dst), int64(src)), nil
	case asm.Or:
		return dst | src, nil
	case asm.And:
		return dst & src, nil
	case asm.LSh:
		return dst << (src & 63), nil
	case asm.RSh:
		return dst >> (src & 63), nil
	case asm.ArSh:
		return uint64(int64(dst) >> (src & 63)), nil
	case asm.Neg:
		return -dst, nil
	case asm.Xor:
		return dst ^ src, nil
	case asm.Mov:
		return move(i, src)
	}
	return 0, fmt.Errorf("unknown operation %v", i.code)
}

func alu32(i instruction, dst, src uint32) (uint32, error) {
	switch i.code.ALUOp() {
	case asm.LSh:
		return dst << (src & 31), nil
	case asm.RSh:
		return dst >> (src & 31), nil
	case asm.ArSh:
		return uint32(int32(dst) >> (src & 31)), nil
	case asm.Div, asm.Mod:
		return uint32(divide(i, uint64(dst), uint64(src), int64(int32(dst)), int64(int32(src)))), nil
	}
	if i.code.ALUOp() == asm.Mov && (i.off == offPerCPU || i.off == 32) {
		return 0, fmt.Errorf("unknown offset %d of a move of 32 bits", i.off)
	}
	v, err := alu64(i, uint64(dst), uint64(src)) // its lower half is the result of the other operations
	return uint32(v), err
}

// divide returns a quotient or a remainder. Division by 0 gives 0, and the remainder is then the dividend (RFC 9669, 4.1).
func divide(i instruction, a, b uint64, signedA, signedB int64) uint64 {
	quotient := i.code.ALUOp() == asm.Div
	switch {
	case b == 0 && quotient:
		return 0
	case b == 0:
		return a
	case i.off == offSigned && quotient:
		return uint64(signedA / signedB) // in Go, too, the lowest number divided by -1 is the dividend
	case i.off == offSigned:
		return uint64(signedA % signedB)
	case quotient:
		return a / b
	}
	return a % b
}

// move returns a copy, which may extend the sign of the lower 8, 16 or 32 bits.
func move(i instruction, src uint64) (uint64, error) {
	switch i.off {
	case 0, offPerCPU: // the machine has only this CPU's part
		return src, nil
	case 8:
		return uint64(int8(src)), nil
	case 16:
		return uint64(int16(src)), nil
	case 32:
		return uint64(int32(src)), nil
	}
	return 0, fmt.Errorf("unknown offset %d of a move", i.off)
}

// swap converts the lower bytes to network order or to little endian (class ALU), or reverses them (class ALU64).
func swap(i instruction, v uint64) (uint64, error) {
	toLittle := i.code.Endianness() == asm.LE
	isLittle := getNumber([]byte{1, 0}) == 1
	turn := i.code.Class() == asm.ALU64Class || toLittle != isLittle
	switch i.imm {
	case 16:
		v = uint64(uint16(v))
		if turn {
			v = uint64(bits.ReverseBytes16(uint16(v)))
		}
	case 32:
		v = uint64(uint32(v))
		if turn {
			v = uint64(bits.ReverseBytes32(uint32(v)))
		}
	case 64:
		if turn {
			v = bits.ReverseBytes64(v)
		}
	default:
		return 0, fmt.Errorf("unknown order of %d bits", i.imm)
	}
	return v, nil
}

// holds reports whether a jump is taken.
func holds(i instruction, a, b uint64) (bool, error) {
	signedA, signedB := int64(a), int64(b)
	if i.code.Class() == asm.Jump32Class {
		signedA, signedB = int64(int32(a)), int64(int32(b))
		a, b = uint64(uint32(a)), uint64(uint32(b))
	}
	switch i.code.JumpOp() {
	case asm.JEq:
		return a == b, nil
	case asm.JGT:
		return a > b, nil
	case asm.JGE:
		return a >= b, nil
	case asm.JSet:
		return a&b != 0, nil
	case asm.JNE:
		return a != b, nil
	case asm.JSGT:
		return signedA > signedB, nil
	case asm.JSGE:
		return signedA >= signedB, nil
	case asm.JLT:
		return a < b, nil
	case asm.JLE:
		return a <= b, nil
	case asm.JSLT:
		return signedA < signedB, nil
	case asm.JSLE:
		return signedA <= signedB, nil
	}
	return false, fmt.Errorf("unknown jump %v", i.code)
}
