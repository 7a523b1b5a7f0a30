package dynamicset

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/addrs"
	"github.com/floodwall/floodwall/internal/manifest"
)

// xdpSet is a dynamic set in the memory of an XDP program.
type xdpSet struct {
	set   *addrs.DynamicSet
	entry manifest.Set
}

// NewXDPSet returns a set of an XDP program. The manifest describes it in entry.
func NewXDPSet(set *addrs.DynamicSet, entry manifest.Set) Set { return &xdpSet{set, entry} }

func (s *xdpSet) Block(_ context.Context, bans []Ban) (int, Refusals, error) {
	now := Now()
	fits := fits{bans: bans, now: now}
	return edit(len(bans), func(i int) error {
		b := bans[i]
		if err := fits.check(s.set, s.entry, i); err != nil {
			return err
		}
		e := addrs.Entry{Prefix: b.Prefix.Masked(), Expiry: Expiry(now, b.For, s.entry.Timeout), Why: b.reason(), Automatic: b.Rule != ""}
		if err := s.set.Insert(e, now); err != nil {
			return BlockError(s.entry, b.Prefix, err)
		}
		fits.entered(b.Prefix.Masked())
		return nil
	})
}

func (s *xdpSet) Unblock(_ context.Context, prefixes []netip.Prefix) (int, Refusals, error) {
	now := Now()
	return edit(len(prefixes), func(i int) error {
		p := prefixes[i].Masked()
		if s.set.Delete(p, now) {
			return nil
		}
		return notBlocked(s.entry, p, s.set.Contains(p.Addr(), now))
	})
}

// edit makes n edits, and lists those that are refused. Of a range that is refused the first piece says so.
func edit(n int, do func(i int) error) (changed int, refused Refusals, err error) {
	for i := range n {
		err := do(i)
		switch {
		case err == nil:
			changed++
		case !errors.Is(err, errOfRange):
			refused = append(refused, Refusal{i, err})
		}
	}
	return changed, refused, nil
}

func (s *xdpSet) List(ctx context.Context) (list []Blocked, err error) {
	err = s.Each(ctx, func(b Blocked) { list = append(list, b) })
	return list, err
}

func (s *xdpSet) Each(_ context.Context, fn func(Blocked)) error {
	now := monotonicTime()
	for entry := range s.set.All(uint32(now / time.Second)) {
		b := BlockedAs(entry.Prefix, s.entry.Name, entry.Why, entry.Automatic)
		if entry.Expiry != 0 {
			left := (time.Duration(entry.Expiry)*time.Second - now).Seconds()
			b.Expires = &left
		}
		fn(b)
	}
	return nil
}

func (s *xdpSet) Count(context.Context) (int, error) { return s.set.Count(Now()), nil }

// BlockError says why set e did not take p: err is of addrs.DynamicSet.Insert.
func BlockError(e manifest.Set, p netip.Prefix, err error) error {
	switch {
	case errors.Is(err, addrs.ErrFull):
		return fullError(e, p)
	case errors.Is(err, addrs.ErrLengths):
		return &SetError{fmt.Sprintf("set %q has 8 different prefix lengths already, and %s is of another", e.Name, addrs.PrefixText(p)),
			"use one of the lengths that are in use (`floodwall blocked` lists them)"}
	}
	return fmt.Errorf("set %q: %s: %w", e.Name, addrs.PrefixText(p), err)
}

func fullError(e manifest.Set, p netip.Prefix) error {
	return &SetError{fmt.Sprintf("set %q is full: %d entries, and %s did not fit", e.Name, e.Max, addrs.PrefixText(p)),
		"raise its max in the policy and apply; or unblock some, or give them shorter times"}
}

// notBlocked says why there is no entry of p to remove.
func notBlocked(e manifest.Set, p netip.Prefix, within bool) error {
	if within {
		return &SetError{fmt.Sprintf("%s is not blocked by an entry of its own, but within another of set %q", addrs.PrefixText(p), e.Name),
			"`floodwall blocked` lists the entries; an entry is removed as a whole"}
	}
	return fmt.Errorf("%s is not blocked in set %q", addrs.PrefixText(p), e.Name)
}

// Expiry is the second of the monotonic clock at which a ban ends, 0 for never.
func Expiry(now uint32, of, timeout time.Duration) uint32 {
	if of == 0 {
		of = timeout
	}
	if of == 0 || of == Forever {
		return 0
	}
	seconds := uint64(of/time.Second) + 1 // the clock may be just short of its next second
	return uint32(min(uint64(now)+seconds, math.MaxUint32))
}
