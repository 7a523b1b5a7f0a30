// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
)

// The layout of struct patterns of bpf/payload.h.
const (
	quadBytes = 4
	quadSlots = 1 << 13
	pairSlots = quadSlots

	patternTableSize = quadSlots + pairSlots + maxPatterns*patternSize
)

// A search is a pattern together with its position in the table.
type search struct {
	ir.Pattern
	before int // the number of bytes before the quad, the four bytes under which the table files the pattern
	slot   int // the slot of the quad; -1 if the pattern is too short for the table
}

// searches returns patterns in the order of the table. Patterns that are too short for the table come first. The others follow, sorted by slot.
func searches(list []ir.Pattern) []search {
	out := make([]search, len(list))
	users := map[int]int{} // for each slot, the number of patterns so far
	for i, p := range list {
		out[i] = search{Pattern: p, slot: -1}
		if len(p.Text) >= quadBytes {
			out[i].before = quadIn(p.Text, users)
			out[i].slot = slotOfQuad(p.Text[out[i].before:])
			users[out[i].slot]++
		}
	}
	slices.SortStableFunc(out, func(a, b search) int { return a.slot - b.slot })
	return out
}

// quadIn returns the offset of the quad in a text: the four bytes under which the table files the text. It chooses the four bytes with the most
// distinct values. Among these it chooses the quad under which the fewest patterns are filed. A sender that knows the patterns can fill packets with
// their quads. Four distinct bytes fit into a packet less often than equal bytes, and each occurrence leads to few patterns.
func quadIn(text []byte, users map[int]int) (best int) {
	most, fewest := 0, 0
	for at := range len(text) - quadBytes + 1 {
		quad := folded(text[at:])
		slices.Sort(quad)
		n, others := len(slices.Compact(quad)), users[slotOfQuad(text[at:])]
		if n > most || n == most && others < fewest {
			most, fewest, best = n, others, at
		}
	}
	return best
}

// maxLeads is the size of leads in bpf/payload.h.
const maxLeads = 2

// lead is struct lead of bpf/payload.h.
type lead struct{ First, Second uint64 }

// leads returns the first two bytes of each pattern's quad, padded to maxLeads. It returns nil if there are too many patterns.
func (c *patterns) leads() []lead {
	if len(c.list) > maxLeads || c.short() > 0 {
		return nil
	}
	const eightTimes = 0x0101010101010101
	list := make([]lead, 0, maxLeads)
	for _, p := range c.list {
		quad := folded(p.Text[p.before:])
		list = append(list, lead{uint64(quad[0]) * eightTimes, uint64(quad[1]) * eightTimes})
	}
	return list
}

// folded returns four bytes in the form that the search compares: bit 5 is set, which makes letters lower case.
func folded(text []byte) []byte {
	quad := bytes.Clone(text[:quadBytes])
	for i := range quad {
		quad[i] |= 0x20
	}
	return quad
}

// slotOfQuad returns the slot in which the search looks for a text that begins with these four bytes.
func slotOfQuad(text []byte) int { return slotOf(binary.LittleEndian.Uint32(folded(text))) }

// slotOf is quad_slot of bpf/payload.h.
func slotOf(quad uint32) int { return int(quad * 0x9e3779b1 >> 19) }

// writePatterns writes the struct patterns.
func writePatterns(to []byte, list []search) {
	quads, pairs, texts := to[:quadSlots], to[quadSlots:][:pairSlots], to[quadSlots+pairSlots:]
	for i, p := range list {
		switch {
		case p.slot < 0:
			setPairs(pairs, p.Text)
		case i == 0 || list[i-1].slot != p.slot:
			quads[p.slot] = uint8(i) + 1
		}
		more := i+1 < len(list) && list[i+1].slot == p.slot
		writePattern(texts[i*patternSize:][:patternSize], p, more)
	}
}

// setPairs sets the bits of all pairs of bytes with which a short text may begin. For a text of one byte, these are the pairs with any second byte.
func setPairs(pairs, text []byte) {
	for next := range 256 {
		if len(text) > 1 {
			next = int(text[1])
		}
		pairs[slotOf(uint32(text[0])|uint32(next)<<8|0x2020)] = 1
	}
}

// writePattern writes a struct pattern. more is set if the next pattern is in the same slot.
func writePattern(to []byte, p search, more bool) {
	for i, c := range p.Text {
		mask := byte(0xff)
		if p.NoCase && 'a' <= c && c <= 'z' {
			mask = 0xff &^ 0x20
		}
		to[i], to[patternText+i] = c&mask, mask
	}
	numbers := to[2*patternText:]
	for i, n := range []int{len(p.Text), int(p.Within), p.before} {
		binary.NativeEndian.PutUint16(numbers[2*i:], uint16(n))
	}
	if more {
		binary.NativeEndian.PutUint16(numbers[6:], 1)
	}
}
