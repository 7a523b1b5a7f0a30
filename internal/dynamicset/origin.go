package dynamicset

import (
	"cmp"
	"context"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/netfilter"
	"github.com/floodwall/floodwall/internal/ruleset"
)

// Origin says who asked for a ban.
type Origin string

// The origins.
const (
	Manual    Origin = "manual"    // a person, or a program of his
	Automatic Origin = "automatic" // a limit with `ban` that was exceeded
)

// automaticWhy begins the reason of automatic bans, which ends with the name of the rule.
const automaticWhy = "above the limit of rule "

// reason is what is noted of a ban.
func (b Ban) reason() string {
	if b.Rule != "" {
		return automaticWhy + b.Rule
	}
	return b.Why
}

// IsAutomatic tells by a reason whether a ban in netfilter, which keeps nothing else, is automatic.
func IsAutomatic(why string) bool { return strings.HasPrefix(why, automaticWhy) }

// BlockedAs is an entry of a set, but for its end.
func BlockedAs(p netip.Prefix, set, why string, automatic bool) Blocked {
	b := Blocked{Prefix: p, Set: set, Why: why, Origin: Manual}
	if automatic {
		b.Origin, b.Rule = Automatic, strings.TrimPrefix(why, automaticWhy)
	}
	return b
}

// filterSpace says which bans a set in netfilter has space for: automatic ones take at most three quarters of it, and give way
// to others, those first that end soonest, as addrs.DynamicSet has it.
type filterSpace struct {
	most      int
	has       map[netip.Prefix]bool // the entries, true for automatic ones
	automatic []netfilter.Element   // of them those that were there, the one that ends first at the end
	count     int                   // of automatic entries
	evicted   []netip.Prefix        // to be removed before others are entered
}

// Whether there is space for a ban.
const (
	spaceTaken = iota
	spaceNone
	spaceKept // an automatic ban of what is banned by hand: nothing is to be done
)

func newFilterSpace(most int, held []netfilter.Element) *filterSpace {
	r := &filterSpace{most: most, has: make(map[netip.Prefix]bool, len(held))}
	for _, e := range held {
		r.has[e.Prefix] = IsAutomatic(e.Comment)
		if r.has[e.Prefix] {
			r.automatic = append(r.automatic, e)
		}
	}
	r.count = len(r.automatic)
	slices.SortFunc(r.automatic, func(a, b netfilter.Element) int { return cmp.Compare(b.Timeout, a.Timeout) })
	return r
}

func (r *filterSpace) take(b Ban) int {
	p, automatic := b.Prefix.Masked(), b.Rule != ""
	was, there := r.has[p]
	switch {
	case there && automatic && !was:
		return spaceKept
	case !there && r.full(automatic) && !r.evictOne():
		return spaceNone
	}
	if there && was && !automatic {
		r.evicted = append(r.evicted, p) // entered anew: an element keeps its comment, by which it would give way
	}
	if was != automatic {
		r.count += map[bool]int{true: 1, false: -1}[automatic]
	}
	r.has[p] = automatic
	return spaceTaken
}

func (r *filterSpace) full(automatic bool) bool {
	return len(r.has) >= r.most || automatic && r.count >= r.most-r.most/4
}

// evictOne gives up the automatic entry that ends first. It reports false when there is none that was there before.
func (r *filterSpace) evictOne() bool {
	for len(r.automatic) > 0 {
		last := r.automatic[len(r.automatic)-1].Prefix
		r.automatic = r.automatic[:len(r.automatic)-1]
		if r.has[last] { // it may have become another's meanwhile
			delete(r.has, last)
			r.count--
			r.evicted = append(r.evicted, last)
			return true
		}
	}
	return false
}

// MostOf are entries of which automatic ones are left out that a set is too small for, those first that end soonest.
func MostOf(list []Blocked, most int) []Blocked {
	end := func(b Blocked) float64 {
		switch {
		case b.Origin != Automatic:
			return math.Inf(1)
		case b.Expires == nil:
			return math.MaxFloat64
		}
		return *b.Expires
	}
	if len(list) <= most {
		return list
	}
	list = slices.SortedFunc(slices.Values(list), func(a, b Blocked) int { return cmp.Compare(end(b), end(a)) })
	for len(list) > most && list[len(list)-1].Origin == Automatic {
		list = list[:len(list)-1]
	}
	return list
}

// evict removes entries.
func (s *filterSet) evict(ctx context.Context, prefixes []netip.Prefix) error {
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
func Elements(p *ruleset.Ruleset, kept map[string][]Blocked) map[string][]netfilter.Element {
	out := map[string][]netfilter.Element{}
	for name, set := range p.Sets {
		for _, b := range kept[name] {
			e := netfilter.Element{Prefix: b.Prefix, Timeout: forever, Comment: b.Why}
			if b.Expires != nil {
				e.Timeout = time.Duration(*b.Expires * float64(time.Second))
			}
			out[set.Of(b.Prefix)] = append(out[set.Of(b.Prefix)], e)
		}
	}
	return out
}
