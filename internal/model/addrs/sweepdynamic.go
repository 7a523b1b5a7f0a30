// SPDX-License-Identifier: Apache-2.0

package addrs

import "math"

// sweep empties the slots of expired entries and counts the other entries. It also clears data that makes searches longer without need: the byte more
// of buckets, and prefix lengths that no entry has any more. Otherwise, all of these bits would be set after some time, as entries come and go. If a
// writer died in makeSpace, an entry is in two slots. sweep then empties the slot that is further from the entry's home.
func (s *DynamicSet) sweep(now uint32) {
	s.state = sweepState{done: true, nextExpiry: math.MaxUint32}
	more := make([]uint64, int(s.buckets.mask)/64+1)
	present := make([]byte, len(s.lengths))
	var entries uint32
	for at := range s.buckets.used {
		p := s.buckets.prefix(at)
		first, _ := s.buckets.find(p)
		if first != at || expired(s.buckets.meta(at), now) {
			s.buckets.clear(at)
			s.setAutomatic(at, false)
			continue
		}
		if s.isAutomatic(at) {
			s.state.automatic++
		}
		entries++
		s.noteExpiry(s.buckets.meta(at))
		noteLength(present, p)
		for b := s.buckets.home(p); b != uint32(at.bucket()); b = (b + 1) & s.buckets.mask {
			more[b/64] |= 1 << (b % 64)
		}
	}
	s.setEntries(entries)
	copyWords(s.lengths, present)
	for b := range int(s.buckets.mask) + 1 {
		if more[b/64]>>(b%64)&1 == 0 {
			s.buckets.setLengthByte(b, bucketMore, 0)
		}
	}
}
