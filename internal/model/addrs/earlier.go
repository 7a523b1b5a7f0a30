// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"math"
	"slices"
	"sync/atomic"
)

// Memory that an earlier version formatted has no DynamicMemory.Lengths. Instead, the record of a set has, from byte 24 on:
//
//	24  u8  n4, n6       number of lengths
//	26  u8  lengths4[8]  prefix lengths + 1 that occur; readers must not rely on their order
//	34  u8  lengths6[8]
//	42  zeros
//	48  u64 absent4      a bit for each hash of an IPv4 address, set if no entry has such an address; 0 if nothing is known
//	56  u64 absent6      the same for IPv6; all bits are set in an empty set
//
// Such memory is in use until the policy is applied again. The new memory does not have the limit of 8 lengths.
const (
	earlierCounts  = 24 // one byte per family
	earlierLengths = 26 // earlierMost bytes per family
	earlierAbsent  = 48 // 8 bytes per family
	earlierMost    = 8
)

func (s *DynamicSet) infoByte(at int) uint8 { return lengthAt(s.word(at&^3), at&3) }

// setInfo changes one byte of the record.
func (s *DynamicSet) setInfo(at int, value uint8) { setByte(word32(s.info, at&^3), at&3, value) }

// earlierLengths returns the prefix lengths in the record.
func (s *DynamicSet) earlierLengths(family int) (list []uint8) {
	for i := range min(int(s.infoByte(earlierCounts+family)), earlierMost) {
		list = append(list, s.infoByte(earlierLengths+family*earlierMost+i)-1)
	}
	return list
}

// addEarlier adds the prefix's length to the record. ok is false if the record already has 8 other lengths. The list stays sorted, with the longest
// length first. The shorter lengths move up by one, starting with the last. Each is written to its new place before its old place is overwritten. So
// a reader that goes upwards never misses a length.
func (s *DynamicSet) addEarlier(p prefix6) (ok bool) {
	family := p.family()
	list := s.earlierLengths(family)
	if slices.Contains(list, p.length) {
		return true
	}
	if len(list) == earlierMost {
		return false
	}
	at := earlierLengths + family*earlierMost
	i := len(list)
	for ; i > 0 && list[i-1] < p.length; i-- {
		s.setInfo(at+i, list[i-1]+1)
		if i == len(list) {
			s.setInfo(earlierCounts+family, uint8(len(list)+1))
		}
	}
	s.setInfo(at+i, p.length+1)
	s.setInfo(earlierCounts+family, uint8(len(list)+1))
	return true
}

// absentFactor is 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, volume 3, 6.4).
const absentFactor = 0x9e3779b97f4a7c15

// absentBit returns the number of an address's bit in the words at earlierAbsent. It hashes the 32 bits of an IPv4 address, or the lower 64
// bits of an IPv6 address.
func absentBit(key prefix6) uint {
	low := key.lo
	if key.family() == 0 {
		low &= math.MaxUint32
	}
	return uint(low * absentFactor >> 58)
}

// notAbsent clears the bits of the addresses of a prefix.
func (s *DynamicSet) notAbsent(key prefix6) {
	left := uint64(0)
	if key.length == 128 {
		left = ^(uint64(1) << absentBit(key))
	}
	atomic.AndUint64(word64(s.info, earlierAbsent+8*key.family()), left)
}
