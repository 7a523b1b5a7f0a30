package addrs

import (
	"bytes"
	"math"
	"slices"
	"strings"
)

// whyOrigin is the place, in a bucket's part of the Why memory, of the byte with a bit for each slot whose entry is automatic.
const whyOrigin = 3

// isAutomatic reports whether the entry of a slot is automatic.
func (s *DynamicSet) isAutomatic(at slot) bool {
	return s.why[at.bucket()*WhyBytes+whyOrigin]>>at.index()&1 == 1
}

// setAutomatic notes of an empty slot, or of an entry, where it comes from.
func (s *DynamicSet) setAutomatic(at slot, automatic bool) {
	origin, bit := &s.why[at.bucket()*WhyBytes+whyOrigin], byte(1)<<at.index()
	if automatic {
		*origin |= bit
	} else {
		*origin &^= bit
	}
}

// automaticCapacity is how many automatic entries the set takes: a quarter is reserved for the others.
func (s *DynamicSet) automaticCapacity() int { return s.Capacity() - s.Capacity()/4 }

// isFull reports whether the set has no space for one more entry of an origin.
func (s *DynamicSet) isFull(automatic bool) bool {
	return s.word(infoEntries) >= s.word(infoCapacity) || automatic && s.state.automatic >= s.automaticCapacity()
}

// evictShare is the share of the automatic entries that are evicted at once: to find them takes a look at all entries.
const evictShare = 16

// Guest begins the text of automatic entries that other hosts asked for. They evict none, and are evicted before those of this host.
const Guest = "fleet" + OwnerEnd

func isGuest(e Entry) bool { return e.Automatic && strings.HasPrefix(e.Why, Guest) }

// evict removes automatic entries: guests first, and of each kind those that end soonest. It reports false when there are none.
func (s *DynamicSet) evict() bool {
	var ranks []uint64
	for at := range s.buckets.used {
		if s.isAutomatic(at) {
			ranks = append(ranks, s.rank(at))
		}
	}
	if len(ranks) == 0 {
		return false
	}
	slices.Sort(ranks)
	n := (len(ranks) + evictShare - 1) / evictShare
	last := ranks[n-1]
	for at := range s.buckets.used {
		if n > 0 && s.isAutomatic(at) && s.rank(at) <= last {
			s.remove(at)
			n--
		}
	}
	return true
}

// rank orders automatic entries: the lowest is evicted first.
func (s *DynamicSet) rank(at slot) uint64 {
	rank := uint64(s.end(at))
	if !bytes.HasPrefix(s.reasons.slot(s.why[whyIndex(at)]), []byte(Guest)) {
		rank |= 1 << 32
	}
	return rank
}

// end is the second at which an entry dies, the last there is when it does not.
func (s *DynamicSet) end(at slot) uint32 {
	if expiry := s.buckets.meta(at); expiry != 0 {
		return expiry
	}
	return math.MaxUint32
}
