// SPDX-License-Identifier: Apache-2.0

package ban

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// filterSpace decides which bans a set in netfilter has space for. Bans of programs take at most three quarters of the space. When space is needed,
// entries of programs are evicted: first entries of the fleet, then the entries that end soonest, as in addrs.DynamicSet.
type filterSpace struct {
	set     manifest.Set
	has     map[netip.Prefix]Ban
	yields  []netip.Prefix        // existing entries of programs; the last in the list is evicted first
	count   int                   // number of entries of programs
	taken   map[netip.Prefix]bool // entries that this batch has added or changed; these are not evicted
	anew    map[netip.Prefix]bool // entries that get another owner or reason
	evicted []netip.Prefix        // evicted entries, to be removed in this order after the new entries are added
	fresh   map[Origin]int        // number of prefixes that had no entry, by the origin of the ban
}

func newFilterSpace(set manifest.Set, held []netfilter.Element) *filterSpace {
	r := &filterSpace{set: set, has: make(map[netip.Prefix]Ban, len(held)), fresh: map[Origin]int{}, taken: map[netip.Prefix]bool{}, anew: map[netip.Prefix]bool{}}
	for _, e := range held {
		b := elementAs(e, "")
		r.has[e.Prefix] = b
		if b.Origin != Manual {
			r.yields = append(r.yields, e.Prefix)
		}
	}
	r.count = len(r.yields)
	slices.SortFunc(r.yields, func(a, b netip.Prefix) int {
		return cmp.Or(r.has[a].guest()-r.has[b].guest(), r.has[b].Until.Compare(r.has[a].Until))
	})
	return r
}

// take adds a ban. It returns errKept if the existing entry of the prefix stays as it is, and a SetError if there is no space.
func (r *filterSpace) take(b Ban) error {
	p, origin := b.Prefix.Masked(), b.origin()
	was, there := r.has[p]
	yields := origin != Manual
	switch {
	case there && !b.changes(was, r.set.Timeout):
		return errKept
	case !there && r.full(yields) && (origin == Fleet || !r.evictOne()): // bans of the fleet evict nothing
		return fullError(r.set, p)
	}
	if there && was.Origin != Manual && !isKept(was.Text(), b.Text()) {
		r.anew[p] = true // an existing element cannot change its comment, which has the origin
	}
	r.count += countYields(yields) - countYields(there && was.Origin != Manual)
	if !there {
		r.fresh[origin]++
	}
	r.has[p], r.taken[p] = b.entry("", r.set.Timeout), true
	return nil
}

func countYields(yields bool) int {
	if yields {
		return 1
	}
	return 0
}

func (r *filterSpace) full(yields bool) bool {
	return len(r.has) >= r.set.Max || yields && r.count >= r.set.Max-r.set.Max/4
}

// evictOne evicts the next entry of a program. It returns false if no such entry from before this batch is left.
func (r *filterSpace) evictOne() bool {
	for len(r.yields) > 0 {
		last := r.yields[len(r.yields)-1]
		r.yields = r.yields[:len(r.yields)-1]
		if !r.taken[last] {
			delete(r.has, last)
			r.count--
			r.evicted = append(r.evicted, last)
			return true
		}
	}
	return false
}

// guest returns 1 for an entry of the fleet, else 0. Entries of the fleet are evicted before entries of this host.
func (b Ban) guest() int {
	if b.Origin == Fleet {
		return 1
	}
	return 0
}

// MostOf shortens a list to at most `most` entries. It drops entries of programs: first those of the fleet, then those that end soonest. It keeps all
// entries of persons.
func MostOf(list []Ban, most int) []Ban {
	if len(list) <= most {
		return list
	}
	list = slices.SortedFunc(slices.Values(list), func(a, b Ban) int {
		return cmp.Or(a.guest()-b.guest(), countYields(a.Origin != Manual)-countYields(b.Origin != Manual), b.Until.Compare(a.Until))
	})
	for len(list) > most && list[len(list)-1].Origin != Manual {
		list = list[:len(list)-1]
	}
	return list
}

// remove removes the entries of the given prefixes from the kernel.
func (s *filterSet) remove(ctx context.Context, prefixes []netip.Prefix) error {
	grouped := map[string][]netip.Prefix{}
	for _, p := range prefixes {
		grouped[s.names.Of(p)] = append(grouped[s.names.Of(p)], p)
	}
	for name, list := range grouped {
		if err := s.tool.Delete(ctx, s.ruleset, name, list); err != nil {
			return err
		}
	}
	return nil
}

// Elements returns the initial elements of the sets of a ruleset, by the set's name in netfilter. `kept` has the entries by the set's name in the
// policy.
func Elements(p *netfilter.Ruleset, kept map[string][]Ban) map[string][]netfilter.Element {
	out := map[string][]netfilter.Element{}
	for name, set := range p.Sets {
		for _, b := range kept[name] {
			out[set.Of(b.Prefix)] = append(out[set.Of(b.Prefix)], elementOf(b))
		}
	}
	return out
}
