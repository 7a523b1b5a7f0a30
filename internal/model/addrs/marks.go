// SPDX-License-Identifier: Apache-2.0

package addrs

import "sync/atomic"

// MarkBytes is the size in bytes of the memory DynamicMemory.Marks. The memory has a byte for each value of twelve bits at the end of an address
// (MarkShift). The byte has a bit for each set that may contain such an address. The BPF program looks up an address only in the sets whose bit is
// set. For most addresses, the load of this byte shows that no set contains them.
//
// A sender who knows the addresses of a set can only cause additional lookups.
const MarkBytes = 1 << (16 - MarkShift)

// MarkShift turns the last two bytes of an address into the index of a mark. A little-endian machine loads the two bytes from network order,
// and shifts out the lowest bits. These belong to the last byte but one, so neighbors in a network have different marks.
const MarkShift = 4

// markOf returns the index of an address's mark.
func markOf(key prefix6) int { return int(key.lo&0xff<<8|key.lo>>8&0xff) >> MarkShift }

// mark records that a set may contain the addresses of a prefix. It must be called before the prefix becomes an entry. The mark remains when the
// entry is removed. A reader then does a lookup that finds nothing.
func (s *DynamicSet) mark(key prefix6) {
	if len(s.marks) < MarkBytes {
		return // memory of an earlier format
	}
	bit := uint32(1) << s.number
	if key.length == 128 {
		at := markOf(key)
		setBits(word32(s.marks, at&^3), bit<<(8*(at&3)))
		return
	}
	for at := 0; at < MarkBytes; at += 4 {
		setBits(word32(s.marks, at), bit*0x01010101)
	}
}

// setBits sets bits in a word. If they are set already, it writes nothing, so that the cache line stays in the caches of all CPUs.
func setBits(word *uint32, bits uint32) {
	if atomic.LoadUint32(word)&bits != bits {
		atomic.OrUint32(word, bits)
	}
}
