package ban

import (
	"cmp"
	"context"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// filterSpace decides which bans a set in netfilter has space for. Bans of programs take at most three quarters of it, and give way to
// others: first those of the fleet, then those that end soonest, as in addrs.DynamicSet.
type filterSpace struct {
	most    int
	has     map[netip.Prefix]Blocked
	yields  []netip.Prefix        // of the entries that were there those of programs, the one that ends first at the end
	count   int                   // of entries of programs
	taken   map[netip.Prefix]bool // entered by this batch, which are not evicted
	anew    map[netip.Prefix]bool // whose entry gets another owner or reason
	evicted []netip.Prefix        // to be removed when others are entered, in this order
	fresh   map[Origin]int        // prefixes that had no entry, by who asked for them
}

// Whether there is space for a ban.
const (
	spaceTaken = iota
	spaceNone
	spaceKept // the entry that is there stays as it is
)

func newFilterSpace(most int, held []netfilter.Element) *filterSpace {
	r := &filterSpace{most: most, has: make(map[netip.Prefix]Blocked, len(held)), fresh: map[Origin]int{}, taken: map[netip.Prefix]bool{}, anew: map[netip.Prefix]bool{}}
	for _, e := range held {
		b := elementAs(e, "")
		r.has[e.Prefix] = b
		if b.Origin != Manual {
			r.yields = append(r.yields, e.Prefix)
		}
	}
	r.count = len(r.yields)
	slices.SortFunc(r.yields, func(a, b netip.Prefix) int {
		return cmp.Or(r.has[a].guest()-r.has[b].guest(), cmp.Compare(r.has[b].end(), r.has[a].end()))
	})
	return r
}

// take says whether a ban is entered, where timeout is that of the set.
func (r *filterSpace) take(b Ban, timeout time.Duration) int {
	p, origin := b.Prefix.Masked(), b.origin()
	was, there := r.has[p]
	yields := origin != Manual
	switch {
	case there && !b.changes(was, timeout):
		return spaceKept
	case !there && r.full(yields) && (origin == Fleet || !r.evictOne()): // bans of the fleet evict none
		return spaceNone
	}
	if there && was.Origin != Manual && !isKept(was.Text(), b.reason()) {
		r.anew[p] = true // an element keeps its comment, by which it has its origin
	}
	r.count += countYields(yields) - countYields(there && was.Origin != Manual)
	if !there {
		r.fresh[origin]++
	}
	r.has[p], r.taken[p] = b.entry(timeout), true
	return spaceTaken
}

func countYields(yields bool) int {
	if yields {
		return 1
	}
	return 0
}

func (r *filterSpace) full(yields bool) bool {
	return len(r.has) >= r.most || yields && r.count >= r.most-r.most/4
}

// evictOne removes the entry of a program that ends first. It reports false if no such entry was there before.
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

// guest is 1 for an entry of the fleet, which gives way to those of this host, else 0.
func (b Blocked) guest() int {
	if b.Origin == Fleet {
		return 1
	}
	return 0
}

// MostOf returns entries without those of programs that a set has no space for: first those of the fleet are left out, then those that end
// soonest.
func MostOf(list []Blocked, most int) []Blocked {
	end := func(b Blocked) float64 {
		switch {
		case b.Origin == Manual:
			return math.Inf(1)
		case b.Expires == nil:
			return math.MaxFloat64
		}
		return *b.Expires
	}
	if len(list) <= most {
		return list
	}
	list = slices.SortedFunc(slices.Values(list), func(a, b Blocked) int { return cmp.Or(a.guest()-b.guest(), cmp.Compare(end(b), end(a))) })
	for len(list) > most && list[len(list)-1].Origin != Manual {
		list = list[:len(list)-1]
	}
	return list
}

// remove removes entries that there are.
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

// Elements are the entries that the sets of a ruleset begin with, by the set of netfilter. kept is by the set of the policy.
func Elements(p *netfilter.Ruleset, kept map[string][]Blocked) map[string][]netfilter.Element {
	out := map[string][]netfilter.Element{}
	for name, set := range p.Sets {
		for _, b := range kept[name] {
			e := netfilter.Element{Prefix: b.Prefix, Timeout: forever, Comment: b.Text()}
			if b.Expires != nil {
				e.Timeout = time.Duration(*b.Expires * float64(time.Second))
			}
			out[set.Of(b.Prefix)] = append(out[set.Of(b.Prefix)], e)
		}
	}
	return out
}
