// SPDX-License-Identifier: Apache-2.0

package ban

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/model/addrs"
)

// xdpSet is a dynamic set in the memory of an XDP program.
type xdpSet struct {
	set   *addrs.DynamicSet
	entry manifest.Set
}

// NewXDPSet returns a dynamic set in the memory of an XDP program. entry is the description of the set in the manifest.
func NewXDPSet(set *addrs.DynamicSet, entry manifest.Set) Set { return &xdpSet{set, entry} }

func (s *xdpSet) Block(_ context.Context, bans []Ban) (Outcome, error) {
	now := Now()
	fits, fresh := fits{bans: bans, now: now}, map[Origin]int{}
	o := edit(len(bans), func(i int) error {
		b := bans[i]
		if err := fits.check(s.set, s.entry, i); err != nil {
			return err
		}
		if was, there := s.get(b.Prefix.Masked(), now); !there {
			fresh[b.origin()]++
		} else if !b.changes(was, s.entry.Timeout) {
			return errKept
		}
		e := addrs.Entry{Prefix: b.Prefix.Masked(), Expiry: expiry(now, b.length(), s.entry.Timeout), Why: b.Text(), Automatic: b.origin() != Manual}
		if err := s.set.Insert(e, now); err != nil {
			fresh[b.origin()]-- // there was no entry
			return BlockError(s.entry, b.Prefix, err)
		}
		fits.entered(b.Prefix.Masked())
		return nil
	})
	o.New = fresh
	return o, nil
}

func (s *xdpSet) Unblock(_ context.Context, prefixes []netip.Prefix, of Owner) (Outcome, error) {
	now := Now()
	return edit(len(prefixes), func(i int) error {
		p := prefixes[i].Masked()
		was, there := s.get(p, now)
		switch {
		case !there:
			return notBlocked(s.entry, p, s.set.Contains(p.Addr(), now))
		case !of.Owns(was):
			return othersEntry(was)
		}
		s.set.Delete(p, now)
		return nil
	}), nil
}

// errKept means that a ban does not change the existing entry of its prefix.
var errKept = errors.New("the entry stays as it is")

// edit calls do for each index below n, and lists the changed and the refused entries. For a refused range it lists only the first piece.
func edit(n int, do func(i int) error) (o Outcome) {
	for i := range n {
		err := do(i)
		switch {
		case err == nil:
			o.Changed = append(o.Changed, i)
		case !errors.Is(err, errKept) && !errors.Is(err, errOfRange):
			o.Refused = append(o.Refused, Refusal{i, err})
		}
	}
	return o
}

// get returns the entry whose prefix is equal to p, unless it has expired. `now` is the present time in seconds of the monotonic clock.
func (s *xdpSet) get(p netip.Prefix, now uint32) (b Ban, ok bool) {
	e, ok := s.set.Get(p, now)
	if ok {
		b = s.blocked(e, time.Duration(now)*time.Second)
	}
	return b, ok
}

// blocked converts an entry of the program to a Ban. `now` is the present time of the monotonic clock.
func (s *xdpSet) blocked(e addrs.Entry, now time.Duration) Ban {
	b := Read(e.Prefix, s.entry.Name, e.Why, Never)
	if e.Automatic && b.Origin == Manual { // the set had no space for the reason
		b.Origin = Automatic
	}
	if e.Expiry != 0 {
		b.Until = time.Now().Add(time.Duration(e.Expiry)*time.Second - now)
	}
	return b
}

func (s *xdpSet) List(ctx context.Context) (list []Ban, err error) {
	err = s.Each(ctx, func(b Ban) { list = append(list, b) })
	return list, err
}

func (s *xdpSet) Each(_ context.Context, fn func(Ban)) error {
	now := image.Monotonic()
	for entry := range s.set.All(uint32(now / time.Second)) {
		fn(s.blocked(entry, now))
	}
	return nil
}

func (s *xdpSet) Count(context.Context) (int, error) { return s.set.Count(Now()), nil }

// Refill replaces all entries of a set by the entries of a list. No program may use the set meanwhile. Entries of programs that do not fit are left
// out.
func Refill(set *addrs.DynamicSet, e manifest.Set, list []Ban) error {
	now := Now()
	for _, old := range slices.Collect(set.All(now)) {
		set.Delete(old.Prefix, now)
	}
	for _, b := range list {
		if err := set.Insert(EntryOf(b, now), now); err != nil && b.Origin == Manual {
			return BlockError(e, b.Prefix, err)
		}
	}
	return nil
}

// EntryOf converts a ban to an entry in the memory of an XDP program. `now` is the present time in seconds of the monotonic clock.
func EntryOf(b Ban, now uint32) addrs.Entry {
	return addrs.Entry{Prefix: b.Prefix, Why: b.Text(), Automatic: b.Origin != Manual, Expiry: expiry(now, b.length(), 0)}
}

// BlockError says why set e refused p. err is an error of addrs.DynamicSet.Insert.
func BlockError(e manifest.Set, p netip.Prefix, err error) error {
	switch {
	case errors.Is(err, addrs.ErrFull):
		return fullError(e, p)
	case errors.Is(err, addrs.ErrLengths):
		return &SetError{fmt.Sprintf("an earlier version has loaded set %q, with space for 8 prefix lengths, and %s is of another", e.Name, addrs.PrefixText(p)),
			"apply the policy again: then the set takes every length, and keeps its entries"}
	}
	return fmt.Errorf("set %q: %s: %w", e.Name, addrs.PrefixText(p), err)
}

func fullError(e manifest.Set, p netip.Prefix) error {
	return &SetError{fmt.Sprintf("set %q is full: %d entries, and %s did not fit", e.Name, e.Max, addrs.PrefixText(p)),
		"raise its max in the policy and apply; or unblock some, or give them shorter times"}
}

// notBlocked returns the error for a prefix that has no entry to remove. within says that a wider entry contains the prefix.
func notBlocked(e manifest.Set, p netip.Prefix, within bool) error {
	if within {
		return &SetError{fmt.Sprintf("%s is not blocked by an entry of its own, but within another of set %q", addrs.PrefixText(p), e.Name),
			"`floodwall blocked` lists the entries; an entry is removed as a whole"}
	}
	return fmt.Errorf("%s is not blocked in set %q", addrs.PrefixText(p), e.Name)
}

// othersEntry returns the error for an entry of another owner.
func othersEntry(b Ban) error {
	return &SetError{fmt.Sprintf("%s is blocked by another: %s", addrs.PrefixText(b.Prefix), b.Text()),
		"unblock it without an origin and a reason, which removes any entry"}
}

// expiry returns the second of the monotonic clock at which a ban ends, 0 for never.
func expiry(now uint32, of, timeout time.Duration) uint32 {
	if of == 0 {
		of = timeout
	}
	if of == 0 || of == Forever {
		return 0
	}
	seconds := uint64(of/time.Second) + 1 // round up: the clock may be just short of its next second
	return uint32(min(uint64(now)+seconds, math.MaxUint32))
}
