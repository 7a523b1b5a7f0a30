package addrs

import "sync/atomic"

// MarkBytes is the size of the memory DynamicMemory.Marks: a byte for each value of twelve bits that an address ends with (MarkShift),
// with a bit for each set that may have such an address. The program looks an address up only in sets of which it has the bit: one load
// says of most addresses that no set has them.
//
// A sender who knows the addresses of a set can only have it looked up.
const MarkBytes = 1 << (16 - MarkShift)

// MarkShift makes the index of a mark: of what a load of the last two bytes of an address in network order has on a little-endian machine, it
// leaves out the lowest bits. These are of the last byte but one, so neighbors in a network have marks of their own.
const MarkShift = 4

// markOf is the index of the mark of an address.
func markOf(key prefix6) int { return int(key.lo&0xff<<8|key.lo>>8&0xff) >> MarkShift }

// mark says that a set may have the addresses of a prefix, before it becomes an entry. It stays so when it is none any more: a reader then
// looks it up in vain.
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

// setBits writes nothing where they are set, which leaves the line to the caches of all CPUs.
func setBits(word *uint32, bits uint32) {
	if atomic.LoadUint32(word)&bits != bits {
		atomic.OrUint32(word, bits)
	}
}
