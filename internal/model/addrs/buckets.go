package addrs

import (
	"iter"
	"sync/atomic"
	"unsafe"
)

// A bucket is one cache line with up to three prefixes, of the IPv6 table and of dynamic sets alike:
//
//	0   {u64 hi, u64 lo} key[3]   first and last 8 bytes of the address, as big-endian numbers in native words
//	48  u32 meta[3]
//	60  u8  length[3]             prefix length + 1, 0 when the slot is empty
//	63  u8  more                  1 when a prefix that belongs here may be in the next bucket or behind it
const (
	BucketBytes = 64

	bucketSlots   = 3
	bucketMeta    = 48
	bucketLengths = 60
	bucketMore    = 3 // index within the word of the lengths

	// maxDisplacement bounds the buckets that a lookup reads to 8, as the verifier wants a bound.
	maxDisplacement = 7
)

// buckets is a hash table over memory that a BPF program may read at any time. The memory is aligned to 8 bytes and
// holds a power of two of buckets. There is one writer, and it may die between any two stores: each store is atomic and
// leaves a valid table. On arm64 only atomic stores keep their order.
type buckets struct {
	memory []byte
	seed   uint64
	mask   uint32
}

// slot is the place of a prefix: three times the bucket's number, plus 0 to 2.
type slot int

func (s slot) bucket() int { return int(s) / bucketSlots }
func (s slot) index() int  { return int(s) % bucketSlots }

// home is the bucket where the search for a prefix begins. The multipliers are odd 64-bit constants of which each bit
// of the input reaches the upper half (2^64 divided by the golden ratio, and one of Steele and Vigna's).
func (b *buckets) home(p prefix6) uint32 {
	h := (p.hi ^ b.seed) * 0x9e3779b97f4a7c15
	h ^= h >> 32
	h = (h + p.lo) * 0xd6e8feb86659fd93
	h ^= h >> 32
	h = (h + uint64(p.length) + 1) * 0x9e3779b97f4a7c15
	return uint32(h>>32) & b.mask
}

// find returns the slot of a prefix. A writer may move entries meanwhile, and give their slots to others: see find_prefix() of bpf/classify.h.
func (b *buckets) find(p prefix6) (slot, bool) {
	home := b.home(p)
	for i := uint32(0); i <= maxDisplacement; {
		bucket := int((home + i) & b.mask)
		lengths := b.lengths(bucket)
		for j := range bucketSlots {
			if lengthAt(lengths, j) == p.length+1 && b.key(bucket, j, p.length) == p {
				return slot(bucket*bucketSlots + j), true
			}
		}
		if b.lengths(bucket) != lengths {
			continue
		}
		if lengths>>(8*bucketMore) == 0 {
			break
		}
		i++
	}
	return 0, false
}

// reach yields the slots where a prefix may be, from its home on.
func (b *buckets) reach(p prefix6) iter.Seq[slot] {
	return func(yield func(slot) bool) {
		home := b.home(p)
		for i := range uint32(maxDisplacement + 1) {
			bucket := int((home + i) & b.mask)
			for j := range bucketSlots {
				if !yield(slot(bucket*bucketSlots + j)) {
					return
				}
			}
		}
	}
}

// claim finds a slot for a prefix that is not in the table: one that is empty, or whose meta is an expiry that now has
// reached. A search for the prefix gets there afterwards. The caller clears the slot before it publishes.
func (b *buckets) claim(p prefix6, now uint32) (slot, bool) {
	for s := range b.reach(p) {
		if b.isFree(s, now) {
			b.lead(b.home(p), s)
			return s, true
		}
	}
	return 0, false
}

// claimBehind is claim for a prefix that is in the table, and takes a slot that searches come to later.
func (b *buckets) claimBehind(p prefix6, at slot, now uint32) (slot, bool) {
	behind := false
	for s := range b.reach(p) {
		if behind && b.isFree(s, now) {
			b.lead(b.home(p), s)
			return s, true
		}
		behind = behind || s == at
	}
	return 0, false
}

func (b *buckets) isFree(s slot, now uint32) bool { return b.length(s) == 0 || expired(b.meta(s), now) }

// lead makes searches go on from the home to the slot's bucket.
func (b *buckets) lead(home uint32, s slot) {
	for ; home != uint32(s.bucket()); home = (home + 1) & b.mask {
		b.setLengthByte(int(home), bucketMore, 1)
	}
}

// expired reports whether an entry of a dynamic set is dead. Expiry 0 is never, and at 0 nothing is: the classes of the
// IPv6 table are safe.
func expired(expiry, now uint32) bool { return expiry != 0 && expiry <= now }

// publish fills an empty slot. The length comes last: it makes the slot visible.
func (b *buckets) publish(s slot, p prefix6, meta uint32) {
	at := s.bucket()*BucketBytes + s.index()*16
	atomic.StoreUint64(word64(b.memory, at), p.hi)
	atomic.StoreUint64(word64(b.memory, at+8), p.lo)
	b.setMeta(s, meta)
	b.setLengthByte(s.bucket(), s.index(), p.length+1)
}

// clear empties a slot.
func (b *buckets) clear(s slot) { b.setLengthByte(s.bucket(), s.index(), 0) }

// used yields the slots that are not empty.
func (b *buckets) used(yield func(slot) bool) {
	for bucket := range int(b.mask) + 1 {
		lengths := b.lengths(bucket)
		if lengths&0xffffff == 0 {
			continue
		}
		for j := range bucketSlots {
			if lengthAt(lengths, j) != 0 && !yield(slot(bucket*bucketSlots+j)) {
				return
			}
		}
	}
}

// prefix is what is in a slot that is not empty.
func (b *buckets) prefix(s slot) prefix6 {
	return b.key(s.bucket(), s.index(), b.length(s)-1)
}

// length is the prefix length + 1 in a slot, or 0 when it is empty.
func (b *buckets) length(s slot) uint8 { return lengthAt(b.lengths(s.bucket()), s.index()) }

func (b *buckets) meta(s slot) uint32 { return atomic.LoadUint32(b.metaWord(s)) }

func (b *buckets) setMeta(s slot, meta uint32) { atomic.StoreUint32(b.metaWord(s), meta) }

func (b *buckets) metaWord(s slot) *uint32 {
	return word32(b.memory, s.bucket()*BucketBytes+bucketMeta+s.index()*4)
}

// key is the prefix in a slot, supposing that its length is the given one.
func (b *buckets) key(bucket, index int, length uint8) prefix6 {
	at := bucket*BucketBytes + index*16
	return prefix6{atomic.LoadUint64(word64(b.memory, at)), atomic.LoadUint64(word64(b.memory, at+8)), length}
}

// lengths is the word that holds the lengths of the three slots and more.
func (b *buckets) lengths(bucket int) uint32 { return atomic.LoadUint32(b.lengthsWord(bucket)) }

func (b *buckets) lengthsWord(bucket int) *uint32 {
	return word32(b.memory, bucket*BucketBytes+bucketLengths)
}

func (b *buckets) setLengthByte(bucket, index int, value uint8) {
	setByte(b.lengthsWord(bucket), index, value)
}

func lengthAt(lengths uint32, index int) uint8 { return uint8(lengths >> (8 * index)) }

// setByte changes one byte of a word that a BPF program reads byte by byte. Go has no atomic store of a byte.
func setByte(word *uint32, index int, value uint8) {
	shift := 8 * index
	if changed := *word&^(0xff<<shift) | uint32(value)<<shift; changed != *word {
		atomic.StoreUint32(word, changed)
	}
}

func word64(memory []byte, at int) *uint64 { return (*uint64)(unsafe.Pointer(&memory[at:][:8][0])) }

func word32(memory []byte, at int) *uint32 { return (*uint32)(unsafe.Pointer(&memory[at:][:4][0])) }
