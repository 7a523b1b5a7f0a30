// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"encoding/binary"
	"fmt"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// block has the records of a section while they are made. The first records of all classes come first, followed by the later records.
type block struct{ list []Record }

// newBlock returns a block for a number of classes.
func newBlock(classes int) *block { return &block{make([]Record, image.PowerOfTwo(classes))} }

// passesBy is a record for classes without a record of their own. A record cannot have an empty range, so this one matches the key 65535, which it
// leaves to general().
var passesBy = Record{First: 1<<16 - 1, Decision: askGeneral}

// add sets the records of a class. It returns false if there are too many.
func (b *block) add(class int, chain []Record) bool {
	if len(chain) == 0 {
		chain = []Record{passesBy}
	}
	at := class
	for i, r := range chain {
		if i < len(chain)-1 {
			r.Next = uint32(len(b.list)) // index within the block
			b.list = append(b.list, Record{})
		}
		b.list[at] = r
		at = len(b.list) - 1
	}
	return len(b.list) <= mostRecords
}

// keep adds a block to the records, unless they already have an equal one. It returns the index of the block's first record, or tooMany.
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

// encode writes a record in the form that the BPF program reads.
func (r *Record) encode(to []byte) {
	binary.NativeEndian.PutUint16(to, r.First)
	binary.NativeEndian.PutUint16(to[2:], r.Width)
	slot, verdict := image.SlotAndVerdict(r.Decision)
	binary.NativeEndian.PutUint32(to[4:], slot)
	binary.NativeEndian.PutUint32(to[8:], r.Next)
	binary.NativeEndian.PutUint32(to[12:], uint32(verdict)) // for askGeneral, this is neither ir.Pass nor ir.Drop
}

// capacity returns the number of records in the map. It is a power of two, so that a mask keeps an index within the map.
func (r *records) capacity() int { return image.PowerOfTwo(max(len(r.list), 2)) }
