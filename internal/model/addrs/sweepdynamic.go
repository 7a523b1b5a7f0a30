package addrs

import (
	"math"
	"slices"
)

// sweep empties the slots of dead entries, counts the others, and takes back the marks that lead searches on to a next
// bucket in vain: with entries that come and go, all buckets would have one in the end. A writer that died in makeSpace
// left an entry in two places, of which the one further from its home goes.
func (s *DynamicSet) sweep(now uint32) {
	s.state = sweepState{done: true, nextExpiry: math.MaxUint32}
	more := make([]uint64, int(s.buckets.mask)/64+1)
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
		s.state.lengths[p.family()][p.length+1] = true
		for b := s.buckets.home(p); b != uint32(at.bucket()); b = (b + 1) & s.buckets.mask {
			more[b/64] |= 1 << (b % 64)
		}
	}
	s.setEntries(entries)
	for b := range int(s.buckets.mask) + 1 {
		if more[b/64]>>(b%64)&1 == 0 {
			s.buckets.setLengthByte(b, bucketMore, 0)
		}
	}
}

// lengths is the list in the record, of n prefix lengths + 1.
func (s *DynamicSet) lengths(family int) (list [infoMaxLengths]uint8, n int) {
	n = min(int(s.infoByte(infoCounts+family)), infoMaxLengths)
	for i := range n {
		list[i] = s.infoByte(infoLengths + family*infoMaxLengths + i)
	}
	return list, n
}

// addLength enters the prefix's length in the record. It is not ok when 8 other lengths occur.
func (s *DynamicSet) addLength(p prefix6, now uint32) (ok bool) {
	family, length := p.family(), p.length+1
	list, n := s.lengths(family)
	switch {
	case slices.Contains(list[:n], length):
		s.state.lengths[family][length] = true
		return true
	case n == infoMaxLengths:
		return s.replaceLength(family, length, now)
	}
	s.insertLength(family, length)
	return true
}

// insertLength keeps the list sorted, the longest first, as most entries are single addresses. It moves the shorter
// ones up from the end, each before its old place is overwritten, so a reader going up misses none at any time.
func (s *DynamicSet) insertLength(family int, length uint8) {
	at := infoLengths + family*infoMaxLengths
	list, n := s.lengths(family)
	i := n
	for ; i > 0 && list[i-1] < length; i-- {
		s.setInfo(at+i, list[i-1])
		if i == n {
			s.setInfo(infoCounts+family, uint8(n+1))
		}
	}
	s.setInfo(at+i, length)
	s.setInfo(infoCounts+family, uint8(n+1))
	s.state.lengths[family][length] = true
}

// replaceLength overwrites a length that does not occur any more. Sorting the list would hide a length for a moment.
func (s *DynamicSet) replaceLength(family int, length uint8, now uint32) bool {
	if s.state.deleted || now >= s.state.nextExpiry {
		s.sweep(now)
	}
	list, n := s.lengths(family)
	for i, l := range list[:n] {
		if !s.state.lengths[family][l] {
			s.setInfo(infoLengths+family*infoMaxLengths+i, length)
			s.state.lengths[family][length] = true
			return true
		}
	}
	return false
}
