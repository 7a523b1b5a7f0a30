// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"bytes"
	"math"
	"slices"
	"strings"
)

// whyOrigin is the index, within a bucket's four bytes of the Why memory, of the byte with a bit for each slot whose entry is
// automatic.
const whyOrigin = 3

// isAutomatic reports whether the entry of a slot is automatic.
func (s *DynamicSet) isAutomatic(at slot) bool {
	return s.why[at.bucket()*WhyBytes+whyOrigin]>>at.index()&1 == 1
}

// setAutomatic records whether the entry of a slot is automatic. It may be called before the entry fills the slot.
func (s *DynamicSet) setAutomatic(at slot, automatic bool) {
	origin, bit := &s.why[at.bucket()*WhyBytes+whyOrigin], byte(1)<<at.index()
	if automatic {
		*origin |= bit
	} else {
		*origin &^= bit
	}
}

// automaticCapacity returns the largest number of automatic entries. A quarter of the set is reserved for other entries.
func (s *DynamicSet) automaticCapacity() int { return s.Capacity() - s.Capacity()/4 }

// isFull reports whether the set has no space for another entry of this kind, automatic or not.
func (s *DynamicSet) isFull(automatic bool) bool {
	return s.word(infoEntries) >= s.word(infoCapacity) || automatic && s.state.automatic >= s.automaticCapacity()
}

// evictShare is the divisor for the number of automatic entries that are evicted at once. Several are evicted, since the search for
// them reads all entries.
const evictShare = 16

// Guest is the beginning of the text of automatic entries that other hosts asked for. Such entries evict no others. They are evicted before the
// automatic entries of this host.
const Guest = "fleet" + OwnerEnd

func isGuest(e Entry) bool { return e.Automatic && strings.HasPrefix(e.Why, Guest) }

// evict removes automatic entries: guests first, and within each kind the entries that expire soonest. It returns false if there are
// none.
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

// rank returns the order of eviction: the entry with the lowest rank is evicted first.
func (s *DynamicSet) rank(at slot) uint64 {
	rank := uint64(s.end(at))
	if !bytes.HasPrefix(s.reasons.slot(s.why[whyIndex(at)]), []byte(Guest)) {
		rank |= 1 << 32
	}
	return rank
}

// end returns the second at which an entry expires, or the largest number if it never expires.
func (s *DynamicSet) end(at slot) uint32 {
	if expiry := s.buckets.meta(at); expiry != 0 {
		return expiry
	}
	return math.MaxUint32
}
