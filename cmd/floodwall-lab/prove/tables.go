// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"encoding/binary"
	"math/bits"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// tables reads the tables of addresses like bpf/classify.h, from the memory of the maps and the constants of the C part. It shares no code with the
// encoder (internal/model/addrs).
type tables struct {
	memory    map[string][]byte
	constants map[string]any
}

func (t *tables) number(name string) uint32 {
	v, _ := t.constants[name].(uint32)
	return v
}

func (t *tables) set(name string) bool {
	v, _ := t.constants[name].(bool)
	return v
}

// empty reports whether a family has no table.
func (t *tables) empty(v6 bool) bool {
	if v6 {
		return len(t.memory[image.Filter6]) == 0
	}
	return t.number("filter4_mask") == 0 && !t.hosts()
}

var native = binary.NativeEndian

// Sizes of struct line, struct full and union hosts of bpf/classify.h, in bytes, and of their parts.
const (
	lineBytes     = 64
	lineInside    = 32
	lineOutside   = 34
	lineFull      = 36
	fullBytes     = 512
	hostLineBytes = 64
	narrowSlots   = 28
	narrowRest    = 56
	narrowMore    = 1 << 14
	wideSlots     = 10
	wideClass     = 40
	wideFactor    = 60
	wideMore      = 1
	wideScan      = 2
	hostProbes    = 8
)

// permuted models permuted() of bpf/classify.h. address is the inverse.
func (t *tables) permuted(a uint32) uint32 {
	n := (a ^ t.number("hosts4_key")) * t.number("hosts4_factor")
	n ^= n >> 16
	return n * 0x2c1b3c6d
}

func (t *tables) address(number uint32) uint32 {
	n := number * inverse(0x2c1b3c6d)
	n ^= n >> 16 // this operation is its own inverse
	return n*inverse(t.number("hosts4_factor")) ^ t.number("hosts4_key")
}

// inverse returns the inverse of an odd number modulo 2^32, by Newton's method.
func inverse(a uint32) uint32 {
	x := a
	for range 5 {
		x *= 2 - a*x
	}
	return x
}

func part(number, of uint32) uint32 { return uint32(uint64(number) * uint64(of) >> 32) }
func second(number uint32) uint32   { return number * 0x9e3779b1 }

// inFilter4 models in_filter4().
func (t *tables) inFilter4(a uint32) bool {
	block := a >> t.number("filter4_shift")
	word := native.Uint64(t.memory[image.Filter4][8*(block>>6&t.number("filter4_mask")):])
	return word>>(block&63)&1 == 1
}

// line returns the line of an address's /24; nil if there is none.
func (t *tables) line(a uint32) []byte {
	if !t.set("have_lines4") {
		return nil
	}
	block := a >> 8
	entry := native.Uint64(t.memory[image.Index4][8*(block>>5):])
	present := uint32(entry)
	if present>>(block&31)&1 == 0 {
		return nil
	}
	number := uint32(entry>>32) + uint32(bits.OnesCount32(present&(1<<(block&31)-1)))
	return t.memory[image.Lines4][lineBytes*int(number):][:lineBytes]
}

// classInLine models class_in_line().
func (t *tables) classInLine(line []byte, a uint32) uint16 {
	if full := native.Uint32(line[lineFull:]); full != 0 {
		return native.Uint16(t.memory[image.Full4][fullBytes*int(full-1)+2*int(a&0xff):])
	}
	if native.Uint64(line[8*(a>>6&3):])>>(a&63)&1 == 1 {
		return native.Uint16(line[lineInside:])
	}
	return native.Uint16(line[lineOutside:])
}

// background returns the class of a /24 without a line; 0 if it has none.
func (t *tables) background(a uint32) uint16 {
	if !t.set("have_background4") {
		return 0
	}
	return native.Uint16(t.memory[image.Background4][2*(a>>16):])
}

// hosts reports whether a hash of hosts exists.
func (t *tables) hosts() bool { return t.number("hosts4_narrow") > 0 || t.number("hosts4_wide") > 0 }

// class4 models class4().
func (t *tables) class4(a uint32) uint16 {
	mask := t.number("filter4_mask")
	if mask != 0 && t.inFilter4(a) {
		if line := t.line(a); line != nil {
			return t.classInLine(line, a)
		}
		if class := t.background(a); class != 0 {
			return class
		}
		return t.host(a)
	}
	if mask != 0 && t.set("filter4_hosts") {
		return 0
	}
	return t.host(a)
}

// host models class_of_host().
func (t *tables) host(a uint32) uint16 {
	if !t.hosts() {
		return 0
	}
	n := t.permuted(a)
	if t.number("hosts4_filter") > 0 && !t.inHostFilter(n) {
		return 0
	}
	return t.byNumber(n)
}

func (t *tables) inHostFilter(n uint32) bool {
	word := native.Uint64(t.memory[image.HostFilter4][8*part(n, t.number("hosts4_filter")):])
	b := second(n)
	return word>>(b>>26)&(word>>(b>>20&63))&1 == 1
}

// byNumber models class_by_number().
func (t *tables) byNumber(n uint32) uint16 {
	if narrow := t.number("hosts4_narrow"); narrow > 0 {
		at := part(n, narrow)
		line := t.memory[image.Hosts4][hostLineBytes*int(at):][:hostLineBytes]
		for slot := range narrowSlots {
			if t.narrowNumber(line, slot) == n&(1<<18-1) {
				if class := t.classOfSlot(at, slot); class != 0 {
					return class
				}
				break
			}
		}
		if native.Uint64(line[narrowRest:])&narrowMore == 0 {
			return 0
		}
	}
	return t.byWide(n)
}

// narrowNumber returns the 18 bits in a slot of a narrow line.
func (t *tables) narrowNumber(line []byte, slot int) uint32 {
	rest := native.Uint64(line[narrowRest:]) >> (16 * (slot % 4)) >> (slot / 4)
	return uint32(native.Uint16(line[2*slot:])) | uint32(rest&1)<<16 | uint32(rest>>7&1)<<17
}

func (t *tables) classOfSlot(line uint32, slot int) uint16 {
	if class := t.number("hosts4_class"); class != 0 {
		return uint16(class)
	}
	return native.Uint16(t.memory[image.HostClasses4][64*int(line)+2*slot:])
}

// byWide models class_by_wide().
func (t *tables) byWide(n uint32) uint16 {
	wide := t.number("hosts4_wide")
	if wide == 0 {
		return 0
	}
	at := part(second(n), wide)
	for range hostProbes {
		line := t.memory[image.Hosts4][hostLineBytes*int(t.number("hosts4_narrow")+at):][:hostLineBytes]
		factor := native.Uint32(line[wideFactor:])
		if slot := part(factor*n, wideSlots); native.Uint32(line[4*slot:]) == n {
			return native.Uint16(line[wideClass+2*slot:])
		}
		for slot := 0; slot < wideSlots && factor&wideScan != 0; slot++ {
			if native.Uint32(line[4*slot:]) == n {
				return native.Uint16(line[wideClass+2*slot:])
			}
		}
		if factor&wideMore == 0 {
			return 0
		}
		if at++; at == wide {
			at = 0
		}
	}
	return 0
}

// everyHost calls do with each address that may be in the hash of hosts. class is the class of the address if it is in a wide line, otherwise 0. The
// numbers are a permutation of the addresses. A line and the bits of a slot determine one number, so a lookup finds no other address there.
func (t *tables) everyHost(do func(a uint32, class uint16)) {
	narrow := uint64(t.number("hosts4_narrow"))
	for i := range narrow {
		line := t.memory[image.Hosts4][hostLineBytes*int(i):][:hostLineBytes]
		first := (i<<32 + narrow - 1) / narrow
		end := ((i+1)<<32 + narrow - 1) / narrow
		for slot := range narrowSlots {
			n := first&^(1<<18-1) | uint64(t.narrowNumber(line, slot))
			for ; n < end; n += 1 << 18 {
				if n >= first {
					do(t.address(uint32(n)), 0)
				}
			}
		}
	}
	for i := range uint64(t.number("hosts4_wide")) {
		line := t.memory[image.Hosts4][hostLineBytes*int(narrow+i):][:hostLineBytes]
		for slot := range wideSlots {
			do(t.address(native.Uint32(line[4*slot:])), native.Uint16(line[wideClass+2*slot:]))
		}
	}
}

// Parts of struct bucket of bpf/classify.h.
const (
	bucketBytes   = 64
	bucketSlots   = 3
	bucketMeta    = 48
	bucketLengths = 60
	bucketProbes  = 8
	metaMarker    = 1 << 16
)

// wide is a number of 128 bits.
type wide struct{ hi, lo uint64 }

// masked models masked().
func (a wide) masked(length int) wide {
	high := func(n int) uint64 {
		if n <= 0 {
			return 0
		}
		return ^uint64(0) << (64 - n)
	}
	return wide{a.hi & high(min(length, 64)), a.lo & high(length-64)}
}

// findPrefix models find_prefix() of the IPv6 table.
func (t *tables) findPrefix(key wide, length uint32) (meta uint32, ok bool) {
	seed, _ := t.constants["buckets6_seed"].(uint64)
	h := (key.hi ^ seed) * 0x9e3779b97f4a7c15
	h ^= h >> 32
	h = (h + key.lo) * 0xd6e8feb86659fd93
	h ^= h >> 32
	h = (h + uint64(length)) * 0x9e3779b97f4a7c15
	for at := range uint32(bucketProbes) {
		b := t.memory[image.Buckets6][bucketBytes*int((uint32(h>>32)+at)&t.number("buckets6_mask")):][:bucketBytes]
		lengths := native.Uint32(b[bucketLengths:])
		for slot := range bucketSlots {
			has := wide{native.Uint64(b[16*slot:]), native.Uint64(b[16*slot+8:])}
			if lengths>>(8*slot)&0xff == length && has == key {
				return native.Uint32(b[bucketMeta+4*slot:]), true
			}
		}
		if lengths>>24 == 0 {
			return 0, false
		}
	}
	return 0, false
}

// lengths6 returns the lengths of prefixes in the IPv6 table.
func (t *tables) lengths6() []uint8 {
	all, _ := t.constants["lengths6"].([129]uint8)
	return all[:min(t.number("lengths6_count"), 129)]
}

// class6 models class6().
func (t *tables) class6(a wide) (class uint16) {
	lengths := t.lengths6()
	from, to := 0, len(lengths)
	for i := 0; i < 8 && from < to; i++ {
		middle := (from + to) / 2
		meta, ok := t.findPrefix(a.masked(int(lengths[middle])), uint32(lengths[middle])+1)
		if !ok {
			to = middle
			continue
		}
		class = uint16(meta)
		if meta&metaMarker == 0 {
			break
		}
		from = middle + 1
	}
	return class
}

// inFilter6 reports whether the filter of the IPv6 table contains the upper 32 bits of an address.
func (t *tables) inFilter6(upper uint32) bool {
	bit := uint64(upper) * 0x9e3779b97f4a7c15 >> 44
	return native.Uint64(t.memory[image.Filter6][8*(bit>>6):])>>(bit&63)&1 == 1
}

// everyPrefix calls do with each prefix in the IPv6 table.
func (t *tables) everyPrefix(do func(p wide, length int, class uint16)) {
	b := t.memory[image.Buckets6]
	for ; len(b) >= bucketBytes; b = b[bucketBytes:] {
		for slot := range bucketSlots {
			if length := native.Uint32(b[bucketLengths:]) >> (8 * slot) & 0xff; length > 0 {
				do(wide{native.Uint64(b[16*slot:]), native.Uint64(b[16*slot+8:])}, int(length)-1, uint16(native.Uint32(b[bucketMeta+4*slot:])))
			}
		}
	}
}
