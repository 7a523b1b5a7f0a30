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

// A search is a pattern as the table has it.
type search struct {
	ir.Pattern
	before int // bytes in front of those that the table knows it by
	slot   int // theirs; -1 for a pattern that is too short
}

// searches are patterns in the order of the table: first those too short for it, then the others, those with the same
// slot next to each other.
func searches(list []ir.Pattern) []search {
	out := make([]search, len(list))
	users := map[int]int{} // of each slot
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

// quadIn returns the offset in a text of the four bytes under which the table files it: those with the most distinct
// bytes, and among these the ones under which the fewest patterns are filed. A sender who knows the patterns can fill
// packets with such bytes. The more distinct they are, the less often they fit into a packet, and each time they lead
// to few patterns.
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

// leads are the first two bytes of the four under which each pattern is filed, if there are few enough of them, padded
// to maxLeads.
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

// folded is four bytes as the search compares them, with bit 5 set: letters become lower case.
func folded(text []byte) []byte {
	quad := bytes.Clone(text[:quadBytes])
	for i := range quad {
		quad[i] |= 0x20
	}
	return quad
}

// slotOfQuad is the slot in which the search looks when it comes to that text.
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

// setPairs marks all pairs of bytes with which a short text may begin; for one byte, with any byte behind it.
func setPairs(pairs, text []byte) {
	for next := range 256 {
		if len(text) > 1 {
			next = int(text[1])
		}
		pairs[slotOf(uint32(text[0])|uint32(next)<<8|0x2020)] = 1
	}
}

// writePattern writes a struct pattern. more says that the next one is in the same slot.
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
