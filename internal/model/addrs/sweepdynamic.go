package addrs

import "math"

// sweep empties the slots of dead entries, counts the others, and takes back what leads searches on in vain: the marks of
// buckets, and lengths that no entry has any more. With entries that come and go, all would be set in the end. A writer that died in makeSpace
// left an entry in two places, of which the one further from its home goes.
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
