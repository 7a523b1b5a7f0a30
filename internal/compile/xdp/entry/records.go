package entry

import (
	"encoding/binary"
	"fmt"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// block holds the records of a section while they are made: one for each class, and those that follow them.
type block struct{ list []Record }

// newBlock is a block for so many classes.
func newBlock(classes int) *block { return &block{make([]Record, image.PowerOfTwo(classes))} }

// passesBy is a record that matches no key except 65535, which it leaves to general(): there is no empty range.
var passesBy = Record{First: 1<<16 - 1, Decision: askGeneral}

// add sets the records of a class. It reports false when there are too many.
func (b *block) add(class int, chain []Record) bool {
	if len(chain) == 0 {
		chain = []Record{passesBy}
	}
	at := class
	for i, r := range chain {
		if i < len(chain)-1 {
			r.Next = uint32(len(b.list)) // within the block
			b.list = append(b.list, Record{})
		}
		b.list[at] = r
		at = len(b.list) - 1
	}
	return len(b.list) <= mostRecords
}

// keep adds a block to the records, unless an equal one is there, and returns the index of its first record, or tooMany.
func (r *records) keep(b *block) int {
	if r.blocks == nil {
		r.blocks, r.list = map[string]int{}, []Record{{}}
	}
	key := fmt.Sprint(b.list)
	if first, ok := r.blocks[key]; ok {
		return first
	}
	first := len(r.list)
	if first+len(b.list) > mostRecords {
		return tooMany
	}
	for _, record := range b.list {
		if record.Next != 0 {
			record.Next += uint32(first)
		}
		r.list = append(r.list, record)
	}
	r.blocks[key] = first
	return first
}

// encode writes a record as the program reads it.
func (r *Record) encode(to []byte) {
	binary.NativeEndian.PutUint16(to, r.First)
	binary.NativeEndian.PutUint16(to[2:], r.Width)
	slot, verdict := image.SlotAndVerdict(r.Decision)
	binary.NativeEndian.PutUint32(to[4:], slot)
	binary.NativeEndian.PutUint32(to[8:], r.Next)
	binary.NativeEndian.PutUint32(to[12:], uint32(verdict)) // of askGeneral neither ir.Pass nor ir.Drop
}

// capacity is how many records the map has: a power of two, so that a mask keeps an index in it.
func (r *records) capacity() int { return image.PowerOfTwo(max(len(r.list), 2)) }
