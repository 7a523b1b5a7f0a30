// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"iter"
	"sync/atomic"
	"unsafe"
)

// A bucket is one cache line with up to three prefixes. The IPv6 table and the dynamic sets both use it:
//
//	0   {u64 hi, u64 lo} key[3]   first and last 8 bytes of the address, as big-endian numbers in native words
//	48  u32 meta[3]
//	60  u8  length[3]             prefix length + 1, 0 when the slot is empty
//	63  u8  more                  1 if a prefix whose home is here or before may be in the next bucket or a later one
const (
	BucketBytes = 64

	bucketSlots   = 3
	bucketMeta    = 48
	bucketLengths = 60
	bucketMore    = 3 // index of the byte more within the word of the lengths

	// maxDisplacement limits a lookup to 8 buckets, since the BPF verifier requires a limit.
	maxDisplacement = 7
)

// buckets is a hash table in memory that a BPF program may read at any time. The memory is aligned to 8 bytes, and the number of buckets is a
// power of two. There is only one writer. It may die between any two stores, so each store is atomic and leaves a valid table. On arm64 only
// atomic stores keep their order.
type buckets struct {
	memory []byte
	seed   uint64
	mask   uint32
}

// slot is the position of a prefix: three times the bucket's number, plus 0 to 2.
type slot int

func (s slot) bucket() int { return int(s) / bucketSlots }
func (s slot) index() int  { return int(s) % bucketSlots }

// home returns the bucket where the search for a prefix starts. The multipliers are odd 64-bit constants that spread each bit of the input to
// the upper half of the product (2^64 divided by the golden ratio, and one of Steele and Vigna's).
func (b *buckets) home(p prefix6) uint32 {
	h := (p.hi ^ b.seed) * 0x9e3779b97f4a7c15
	h ^= h >> 32
	h = (h + p.lo) * 0xd6e8feb86659fd93
	h ^= h >> 32
	h = (h + uint64(p.length) + 1) * 0x9e3779b97f4a7c15
	return uint32(h>>32) & b.mask
}

// find returns the slot of a prefix. A writer may move entries and reuse their slots during the search: see find_prefix() of bpf/classify.h.
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

// reach yields the slots where a prefix may be stored, starting with its home bucket.
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

// claim finds a free slot for a prefix that is not in the table. A slot is free if it is empty, or if its entry has expired at the time now.
// claim makes later searches for the prefix reach the slot. The caller must clear the slot before it publishes the prefix.
func (b *buckets) claim(p prefix6, now uint32) (slot, bool) {
	for s := range b.reach(p) {
		if b.isFree(s, now) {
			b.lead(b.home(p), s)
			return s, true
		}
	}
	return 0, false
}

// claimBehind does the same as claim, but for a prefix that is in the table already. It takes a slot that searches reach after the prefix's current
// slot.
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

// lead sets the byte more in each bucket from home to the one before the slot's bucket, so that searches continue to the slot.
func (b *buckets) lead(home uint32, s slot) {
	for ; home != uint32(s.bucket()); home = (home + 1) & b.mask {
		b.setLengthByte(int(home), bucketMore, 1)
	}
}

// expired reports whether an entry of a dynamic set has expired. The expiry 0 means never. Nothing is expired at the time 0: the IPv6 table,
// whose meta is a class and not an expiry, passes 0 as now.
func expired(expiry, now uint32) bool { return expiry != 0 && expiry <= now }

// publish fills an empty slot. It stores the length last, since the length makes the slot visible.
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

// prefix returns the prefix in a slot. The slot must not be empty.
func (b *buckets) prefix(s slot) prefix6 {
	return b.key(s.bucket(), s.index(), b.length(s)-1)
}

// length returns the prefix length + 1 of a slot, or 0 if the slot is empty.
func (b *buckets) length(s slot) uint8 { return lengthAt(b.lengths(s.bucket()), s.index()) }

func (b *buckets) meta(s slot) uint32 { return atomic.LoadUint32(b.metaWord(s)) }

func (b *buckets) setMeta(s slot, meta uint32) { atomic.StoreUint32(b.metaWord(s), meta) }

func (b *buckets) metaWord(s slot) *uint32 {
	return word32(b.memory, s.bucket()*BucketBytes+bucketMeta+s.index()*4)
}

// key returns the address in a slot as a prefix of the given length.
func (b *buckets) key(bucket, index int, length uint8) prefix6 {
	at := bucket*BucketBytes + index*16
	return prefix6{atomic.LoadUint64(word64(b.memory, at)), atomic.LoadUint64(word64(b.memory, at+8)), length}
}

// lengths returns the word with the lengths of the three slots and the byte more.
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
