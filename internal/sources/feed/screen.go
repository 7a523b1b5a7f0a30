package feed

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Removed is what was taken out of a list, and why.
type Removed struct {
	Prefix netip.Prefix `json:"prefix"`
	Why    string       `json:"why"`
}

// Screened is what is left of a list, and what is not.
type Screened struct {
	Set     *addrs.Set `json:"-"`
	Removed []Removed  `json:"removed,omitempty"` // the first MostNamed
	More    int        `json:"more,omitempty"`    // that were removed beyond them
}

// MostNamed is how many prefixes that were removed are kept by name.
const MostNamed = 100

// AllowEntry is addresses that must not be in a list, and why.
type AllowEntry struct {
	Prefix netip.Prefix
	Why    string
}

// Allow takes addresses out of the set.
func (s *Screened) Allow(list []AllowEntry) {
	byWhy := map[string]*addrs.Builder{}
	var order []string
	for _, one := range list {
		if byWhy[one.Why] == nil {
			byWhy[one.Why], order = &addrs.Builder{}, append(order, one.Why)
		}
		if byWhy[one.Why].Add(one.Prefix) != nil {
			continue // no prefix, so no address
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

// Count is how many prefixes were removed.
func (s *Screened) Count() int { return len(s.Removed) + s.More }

// Reasons says how many prefixes were removed for which reason, and names one of each; "" when none was.
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

// Reasons for which prefixes of any list are removed.
const (
	whyWide  = "too large"
	whyBogon = "not routed on the Internet"
)

// screen collects the entries of a list.
type screen struct {
	Screened
	builder addrs.Builder
	entries int // that were read, also those that are removed
}

// larger reports whether more entries, or more prefixes of them, were read than a list may have. The memory of the builder is in
// proportion to the prefixes, and a range of IPv6 addresses can have more than two hundred.
func (s *screen) larger(most int) bool { return s.entries > most || s.builder.Entries() > most }

// take takes an entry, which a range can have several prefixes of.
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
			return // ParseLine returns valid prefixes
		}
	}
}

// done is what is left of all entries.
func (s *screen) done() *Screened {
	s.Set = s.builder.Set()
	var bogons addrs.Builder
	for _, p := range packet.Bogons {
		if bogons.Add(p) != nil {
			continue // all of them are valid
		}
	}
	s.allowSet(bogons.Set(), whyBogon)
	return &s.Screened
}
