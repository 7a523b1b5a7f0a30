package compile

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/floodwall/floodwall/internal/ir"
)

// The layout of struct patterns of bpf/payload.h.
const (
	quadOctets = 4
	quadSlots  = 1 << 13
	pairSlots  = quadSlots

	patternTableSize = quadSlots + pairSlots + maxPatterns*patternSize
)

// inTableOrder sorts patterns as the table wants them: those too short for it first, then those that share a slot next to
// each other.
func inTableOrder(list []ir.Pattern) []ir.Pattern {
	place := func(p ir.Pattern) int {
		if len(p.Text) < quadOctets {
			return -1
		}
		return slotOfQuad(p.Text[quadIn(p.Text):])
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b ir.Pattern) int { return place(a) - place(b) })
	return list
}

// shortPatterns is how many patterns are shorter than what the table is asked by.
func shortPatterns(list []ir.Pattern) (n int) {
	for _, p := range list {
		if len(p.Text) < quadOctets {
			n++
		}
	}
	return n
}

// quadIn is where in a text of at least four octets those begin that the table knows it by: the first four of which the
// most differ. A sender who knows the pattern can fill a packet with them, but the less often the more they differ.
func quadIn(text []byte) (at int) {
	most := 0
	for i := range len(text) - quadOctets + 1 {
		quad := folded(text[i:])
		slices.Sort(quad)
		if n := len(slices.Compact(quad)); n > most {
			most, at = n, i
		}
	}
	return at
}

// folded is four octets as the search compares them: with bit 5 set, which makes letters lower case.
func folded(text []byte) []byte {
	quad := bytes.Clone(text[:quadOctets])
	for i := range quad {
		quad[i] |= 0x20
	}
	return quad
}

// slotOfQuad is the slot that the search looks into where it comes to that text.
func slotOfQuad(text []byte) int { return slotOf(binary.LittleEndian.Uint32(folded(text))) }

// slotOf is quad_slot of bpf/payload.h.
func slotOf(quad uint32) int { return int(quad * 0x9e3779b1 >> 19) }

// writePatterns writes the struct patterns of a list that is in the table's order.
func writePatterns(to []byte, list []ir.Pattern) {
	quads, pairs, texts := to[:quadSlots], to[quadSlots:][:pairSlots], to[quadSlots+pairSlots:]
	last := -1 // the slot of the pattern before
	for i, p := range list {
		slot, before := -1, 0
		if len(p.Text) < quadOctets {
			setPairs(pairs, p.Text)
		} else {
			before = quadIn(p.Text)
			slot = slotOfQuad(p.Text[before:])
		}
		if i > 0 && slot == last {
			binary.NativeEndian.PutUint16(texts[(i-1)*patternSize+patternMore:], 1)
		} else if slot >= 0 {
			quads[slot] = uint8(i) + 1
		}
		last = slot
		writePattern(texts[i*patternSize:][:patternSize], p, before)
	}
}

// setPairs marks all two octets that a short text may begin with: for one octet, whatever follows.
func setPairs(pairs, text []byte) {
	for next := range 256 {
		if len(text) > 1 {
			next = int(text[1])
		}
		pairs[slotOf(uint32(text[0])|uint32(next)<<8|0x2020)] = 1
	}
}

// patternMore is where `more` is in struct pattern.
const patternMore = 2*patternText + 6

// writePattern writes a struct pattern, but for more.
func writePattern(to []byte, p ir.Pattern, before int) {
	for i, c := range p.Text {
		mask := byte(0xff)
		if p.NoCase && 'a' <= c && c <= 'z' {
			mask = 0xff &^ 0x20
		}
		to[i], to[patternText+i] = c&mask, mask
	}
	numbers := to[2*patternText:]
	binary.NativeEndian.PutUint16(numbers, uint16(len(p.Text)))
	binary.NativeEndian.PutUint16(numbers[2:], p.Within)
	binary.NativeEndian.PutUint16(numbers[4:], uint16(before))
}
