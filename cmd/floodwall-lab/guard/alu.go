// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"math/bits"
)

// Operations of the classes ALU and ALU64 (RFC 9669, 4.1).
const (
	aluAdd  = 0x00
	aluSub  = 0x10
	aluMul  = 0x20
	aluDiv  = 0x30
	aluOr   = 0x40
	aluAnd  = 0x50
	aluLsh  = 0x60
	aluRsh  = 0x70
	aluNeg  = 0x80
	aluMod  = 0x90
	aluXor  = 0xa0
	aluMov  = 0xb0
	aluArsh = 0xc0
	aluEnd  = 0xd0
)

// The offsets that change an operation.
const (
	offSigned = 1  // of division
	offPerCPU = -1 // of a move in translated programs: the address of this CPU's part (BPF_ADDR_PERCPU of linux/filter.h)
)

// alu returns the result of an instruction for its operands.
func alu(i instruction, dst, src uint64) (uint64, error) {
	if i.op() == aluEnd {
		return swap(i, dst)
	}
	if i.off != 0 && !(i.off == offSigned && (i.op() == aluDiv || i.op() == aluMod)) && i.op() != aluMov {
		return 0, fmt.Errorf("unknown offset %d of operation %#x", i.off, i.code)
	}
	if i.class() == classALU64 {
		return alu64(i, dst, src)
	}
	v, err := alu32(i, uint32(dst), uint32(src))
	return uint64(v), err
}

func alu64(i instruction, dst, src uint64) (uint64, error) {
	switch i.op() {
	case aluAdd:
		return dst + src, nil
	case aluSub:
		return dst - src, nil
	case aluMul:
		return dst * src, nil
	case aluDiv, aluMod:
		return divide(i, dst, src, int64(dst), int64(src)), nil
	case aluOr:
		return dst | src, nil
	case aluAnd:
		return dst & src, nil
	case aluLsh:
		return dst << (src & 63), nil
	case aluRsh:
		return dst >> (src & 63), nil
	case aluArsh:
		return uint64(int64(dst) >> (src & 63)), nil
	case aluNeg:
		return -dst, nil
	case aluXor:
		return dst ^ src, nil
	case aluMov:
		return move(i, src)
	}
	return 0, fmt.Errorf("unknown operation %#x", i.code)
}

func alu32(i instruction, dst, src uint32) (uint32, error) {
	switch i.op() {
	case aluLsh:
		return dst << (src & 31), nil
	case aluRsh:
		return dst >> (src & 31), nil
	case aluArsh:
		return uint32(int32(dst) >> (src & 31)), nil
	case aluDiv, aluMod:
		return uint32(divide(i, uint64(dst), uint64(src), int64(int32(dst)), int64(int32(src)))), nil
	}
	if i.op() == aluMov && (i.off == offPerCPU || i.off == 32) {
		return 0, fmt.Errorf("unknown offset %d of a move of 32 bits", i.off)
	}
	v, err := alu64(i, uint64(dst), uint64(src)) // its lower half is the result of the other operations
	return uint32(v), err
}

// divide returns a quotient or a remainder. Division by 0 gives 0, and the remainder is then the dividend (RFC 9669, 4.1).
func divide(i instruction, a, b uint64, signedA, signedB int64) uint64 {
	quotient := i.op() == aluDiv
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
	toLittle := i.code&sourceX == 0
	isLittle := getNumber([]byte{1, 0}) == 1
	turn := i.class() == classALU64 || toLittle != isLittle
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

// Conditions of jumps (RFC 9669, 4.3).
const (
	jumpAlways = 0x00
	jumpEQ     = 0x10
	jumpGT     = 0x20
	jumpGE     = 0x30
	jumpSet    = 0x40
	jumpNE     = 0x50
	jumpSGT    = 0x60
	jumpSGE    = 0x70
	jumpCall   = 0x80
	jumpExit   = 0x90
	jumpLT     = 0xa0
	jumpLE     = 0xb0
	jumpSLT    = 0xc0
	jumpSLE    = 0xd0
)

// holds reports whether a jump is taken.
func holds(i instruction, a, b uint64) (bool, error) {
	signedA, signedB := int64(a), int64(b)
	if i.class() == classJMP32 {
		signedA, signedB = int64(int32(a)), int64(int32(b))
		a, b = uint64(uint32(a)), uint64(uint32(b))
	}
	switch i.op() {
	case jumpEQ:
		return a == b, nil
	case jumpGT:
		return a > b, nil
	case jumpGE:
		return a >= b, nil
	case jumpSet:
		return a&b != 0, nil
	case jumpNE:
		return a != b, nil
	case jumpSGT:
		return signedA > signedB, nil
	case jumpSGE:
		return signedA >= signedB, nil
	case jumpLT:
		return a < b, nil
	case jumpLE:
		return a <= b, nil
	case jumpSLT:
		return signedA < signedB, nil
	case jumpSLE:
		return signedA <= signedB, nil
	}
	return false, fmt.Errorf("unknown jump %#x", i.code)
}
