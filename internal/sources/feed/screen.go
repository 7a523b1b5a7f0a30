// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Removed is a prefix that was removed from a list, with the reason.
type Removed struct {
	Prefix netip.Prefix `json:"prefix"`
	Why    string       `json:"why"`
}

// Screened has the set of the prefixes that remain in a list, and the removed prefixes.
type Screened struct {
	Set     *addrs.Set `json:"-"`
	Removed []Removed  `json:"removed,omitempty"` // the first MostNamed
	More    int        `json:"more,omitempty"`    // the number of further removed prefixes
}

// MostNamed is the largest number of removed prefixes in Removed.
const MostNamed = 100

// AllowEntry is a set of addresses that a list must not contain, with the reason.
type AllowEntry struct {
	Prefix netip.Prefix
	Why    string
}

// Allow removes the addresses of these entries from the set.
func (s *Screened) Allow(list []AllowEntry) {
	byWhy := map[string]*addrs.Builder{}
	var order []string
	for _, one := range list {
		if byWhy[one.Why] == nil {
			byWhy[one.Why], order = &addrs.Builder{}, append(order, one.Why)
		}
		if byWhy[one.Why].Add(one.Prefix) != nil {
			continue // the entry has no prefix, so there is nothing to remove
		}
	}
	for _, why := range order {
		s.allowSet(byWhy[why].Set(), why)
	}
}

func (s *Screened) allowSet(allowed *addrs.Set, why string) {
	for p := range s.Set.Both(allowed).Prefixes() {
		s.note(p, why)
	}
	s.Set = s.Set.Without(allowed)
}

func (s *Screened) note(p netip.Prefix, why string) {
	if len(s.Removed) == MostNamed {
		s.More++
		return
	}
	s.Removed = append(s.Removed, Removed{p, why})
}

// Count returns the number of removed prefixes.
func (s *Screened) Count() int { return len(s.Removed) + s.More }

// Reasons returns a text with the number of removed prefixes for each reason, and an example. It returns "" if none was removed.
func (s *Screened) Reasons() (text string) {
	counts := map[string]int{}
	first := map[string]netip.Prefix{}
	for _, r := range s.Removed {
		if counts[r.Why]++; counts[r.Why] == 1 {
			first[r.Why] = r.Prefix
		}
	}
	var whys []string
	for why := range counts {
		whys = append(whys, why)
	}
	slices.SortFunc(whys, func(a, b string) int { return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b)) })
	for i, why := range whys {
		if i > 0 {
			text += ", "
		}
		text += addrs.PrefixText(first[why])
		if n := counts[why] - 1; n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
		text += " (" + why + ")"
	}
	if s.More > 0 {
		text += fmt.Sprintf(", and %d more", s.More)
	}
	return text
}

// Reasons why prefixes are removed from any list.
const (
	whyWide  = "too large"
	whyBogon = "not routed on the Internet"
)

// screen collects the entries of a list.
type screen struct {
	Screened
	builder addrs.Builder
	entries int // number of parsed entries, including removed ones
}

// larger reports whether a list has too many entries, or too many prefixes in its entries. The memory of the builder is proportional to the number of
// prefixes, and a range of IPv6 addresses can have more than two hundred.
func (s *screen) larger(most int) bool { return s.entries > most || s.builder.Entries() > most }

// take adds an entry. An entry that is a range can have several prefixes.
func (s *screen) take(entry []netip.Prefix) {
	s.entries++
	wide := func(p netip.Prefix) bool {
		return p.Bits() < addrs.Shortest4 || p.Addr().Is6() && p.Bits() < addrs.Shortest6
	}
	if i := slices.IndexFunc(entry, wide); i >= 0 {
		s.note(entry[i], whyWide)
		return
	}
	for _, p := range entry {
		if s.builder.Add(p) != nil {
			return // cannot happen, because ParseLine returns valid prefixes
		}
	}
}

// done returns the remaining set and the removed prefixes.
func (s *screen) done() *Screened {
	s.Set = s.builder.Set()
	var bogons addrs.Builder
	for _, p := range packet.Bogons {
		if bogons.Add(p) != nil {
			continue // cannot happen, because all prefixes are valid
		}
	}
	s.allowSet(bogons.Set(), whyBogon)
	return &s.Screened
}
