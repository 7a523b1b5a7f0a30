// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"fmt"
	"iter"
	"net/netip"
)

// Entry is an entry of a dynamic set.
type Entry struct {
	Prefix netip.Prefix
	Expiry uint32 // second of CLOCK_MONOTONIC at which the entry expires; 0 means never
	Why    string // the reason, cut to 64 bytes; after 247 different texts in all sets of a policy, only the part up to OwnerEnd is kept

	// Automatic entries were added by a program, not by a person. They take at most three quarters of the set. They are evicted if other entries need
	// the space.
	Automatic bool
}

// DynamicSet is a set that changes while a BPF program reads it. Times are seconds of CLOCK_MONOTONIC.
type DynamicSet struct {
	info    []byte
	marks   []byte // of all sets of the policy
	lengths []byte // empty in memory of an earlier format, see earlier.go
	number  int
	buckets buckets
	why     []byte
	reasons *reasons
	state   sweepState
}

// sweepState has the results of the last sweep. Later changes of the set update it.
type sweepState struct {
	done       bool
	automatic  int    // automatic entries
	nextExpiry uint32 // no entry expires before this second; math.MaxUint32 if no entry expires at all
}

// Capacity returns the largest number of entries of the set.
func (s *DynamicSet) Capacity() int { return int(s.word(infoCapacity)) }

// Insert adds an entry. If the set already has an entry with the same prefix, that entry gets the new expiry. It also gets the new reason, unless the
// new reason is empty. An automatic entry never changes an entry that is not automatic. If the set is full, automatic entries are evicted: guests
// first, and of each kind the ones that expire first. The error is ErrFull, ErrLengths, or about the prefix.
func (s *DynamicSet) Insert(e Entry, now uint32) error {
	key, err := dynamicKey(e.Prefix)
	if err != nil {
		return err
	}
	if !s.state.done {
		s.sweep(now)
	}
	if at, ok := s.buckets.find(key); ok {
		if !expired(s.buckets.meta(at), now) {
			if !e.Automatic || s.isAutomatic(at) {
				s.refresh(at, e, now)
			}
			return nil
		}
		s.remove(at)
	}
	return s.insert(key, e, now)
}

func (s *DynamicSet) refresh(at slot, e Entry, now uint32) {
	if e.Why != "" || s.isAutomatic(at) { // a person's entry must not keep the reason that a program gave
		s.why[whyIndex(at)] = s.reasons.number(e.Why, e.Automatic, now)
	}
	if s.isAutomatic(at) && !e.Automatic {
		s.setAutomatic(at, false)
		s.state.automatic--
	}
	s.buckets.setMeta(at, e.Expiry)
	s.noteExpiry(e.Expiry)
}

func (s *DynamicSet) insert(key prefix6, e Entry, now uint32) error {
	if s.isFull(e.Automatic) && now >= s.state.nextExpiry {
		s.sweep(now)
	}
	if s.isFull(e.Automatic) && (isGuest(e) || !s.evict()) {
		return fmt.Errorf("inserting %s: %w", e.Prefix, ErrFull)
	}
	if !s.addLength(key) {
		return fmt.Errorf("inserting %s: %w", e.Prefix, ErrLengths)
	}
	at, ok := s.buckets.claim(key, now)
	if !ok {
		at, ok = s.makeSpace(key, now)
	}
	if !ok {
		return fmt.Errorf("inserting %s: %w at the place of this prefix", e.Prefix, ErrFull)
	}
	s.remove(at)
	s.why[whyIndex(at)] = s.reasons.number(e.Why, e.Automatic, now)
	s.setAutomatic(at, e.Automatic)
	if e.Automatic {
		s.state.automatic++
	}
	s.noteExpiry(e.Expiry)
	s.mark(key)
	s.buckets.publish(at, key, e.Expiry)
	s.setEntries(s.word(infoEntries) + 1)
	return nil
}

// makeSpace frees a slot for a prefix by moving another entry farther from its home. For a moment, the moved entry is in both slots. An
// entry never moves back, so a concurrent search finds it.
func (s *DynamicSet) makeSpace(key prefix6, now uint32) (slot, bool) {
	for at := range s.buckets.reach(key) {
		p := s.buckets.prefix(at)
		to, ok := s.buckets.claimBehind(p, at, now)
		if !ok {
			continue
		}
		s.remove(to)
		s.why[whyIndex(to)] = s.why[whyIndex(at)]
		s.setAutomatic(to, s.isAutomatic(at))
		s.buckets.publish(to, p, s.buckets.meta(at))
		s.buckets.clear(at)
		s.buckets.lead(s.buckets.home(key), at)
		return at, true
	}
	return 0, false
}

// remove empties a slot. It does nothing if the slot is empty already.
func (s *DynamicSet) remove(at slot) {
	if s.buckets.length(at) == 0 {
		return
	}
	s.buckets.clear(at)
	if s.isAutomatic(at) {
		s.setAutomatic(at, false)
		s.state.automatic--
	}
	s.setEntries(max(s.word(infoEntries), 1) - 1)
}

// addLength records the length of a prefix in the memory of the set. ok is false if the memory has an earlier format and no space for another length.
func (s *DynamicSet) addLength(key prefix6) (ok bool) {
	if len(s.lengths) == 0 {
		s.notAbsent(key)
		return s.addEarlier(key)
	}
	noteLength(s.lengths, key)
	return true
}

func (s *DynamicSet) noteExpiry(expiry uint32) {
	if expiry != 0 {
		s.state.nextExpiry = min(s.state.nextExpiry, expiry)
	}
}

// Delete removes the entry of exactly this prefix. It reports whether there was such an entry that had not expired.
func (s *DynamicSet) Delete(p netip.Prefix, now uint32) bool {
	key, err := dynamicKey(p)
	if err != nil {
		return false
	}
	if !s.state.done {
		s.sweep(now)
	}
	at, ok := s.buckets.find(key)
	if !ok {
		return false
	}
	alive := !expired(s.buckets.meta(at), now)
	s.remove(at)
	return alive
}

// Get returns the entry of exactly this prefix, if there is one that has not expired.
func (s *DynamicSet) Get(p netip.Prefix, now uint32) (Entry, bool) {
	key, err := dynamicKey(p)
	if err != nil {
		return Entry{}, false
	}
	at, ok := s.buckets.find(key)
	if !ok || expired(s.buckets.meta(at), now) {
		return Entry{}, false
	}
	return s.entry(at), true
}

func (s *DynamicSet) entry(at slot) Entry {
	return Entry{s.buckets.prefix(at).unmapped(), s.buckets.meta(at), s.reasons.text(s.why[whyIndex(at)]), s.isAutomatic(at)}
}

// Contains reports whether a prefix in the set covers the address. It searches as the datapath does.
func (s *DynamicSet) Contains(a netip.Addr, now uint32) bool {
	key, family := prefix6{}, 1
	if a.Is4() {
		key, family = mapped(a), 0
	} else {
		key = prefix6From(a, 128)
	}
	for _, length := range s.lengthsAt(key, family) {
		if a.Is4In6() && length >= 96 {
			continue // keys of this form are reserved for IPv4 prefixes
		}
		if at, ok := s.buckets.find(key.cut(length)); ok && !expired(s.buckets.meta(at), now) {
			return true
		}
	}
	return false
}

// All yields the entries that have not expired, in no particular order.
func (s *DynamicSet) All(now uint32) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for at := range s.buckets.used {
			if !expired(s.buckets.meta(at), now) && !yield(s.entry(at)) {
				return
			}
		}
	}
}

// Count returns the number of entries that have not expired.
func (s *DynamicSet) Count(now uint32) (n int) {
	for at := range s.buckets.used {
		if !expired(s.buckets.meta(at), now) {
			n++
		}
	}
	return n
}

// Copy inserts the entries of another set that have not expired. It returns an error at the first entry that does not fit. Automatic entries come
// last. If some of them do not fit, they are left out without an error.
func (s *DynamicSet) Copy(from *DynamicSet, now uint32) error {
	for e := range from.All(now) {
		if e.Automatic {
			continue
		}
		if err := s.Insert(e, now); err != nil {
			return err
		}
	}
	for e := range from.All(now) {
		if e.Automatic && !s.isFull(true) {
			_ = s.Insert(e, now) // there may be no free slot for this prefix
		}
	}
	return nil
}
