// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// Builder collects entries of a set, in any order. Entries may overlap.
type Builder struct {
	hosts   []uint32 // IPv4 addresses that were read from a list file; compared with ranges, they take half the memory and half the time to sort
	v4      []Range
	v6      []prefix6
	entries int
}

// Entries returns the number of entries that were added. Each prefix and each range counts as one, which is how users count entries.
func (b *Builder) Entries() int { return b.entries }

// Add adds a prefix; host bits set in it are ignored.
func (b *Builder) Add(p netip.Prefix) error {
	if !p.IsValid() {
		return errors.New("adding an invalid prefix")
	}
	b.entries++
	if !p.Addr().Is4() {
		b.v6 = append(b.v6, prefix6From(p.Addr(), p.Bits()))
		return nil
	}
	b.v4 = append(b.v4, block4(number4(p.Addr()), p.Bits()))
	return nil
}

// AddRange adds the addresses from first to last, both included, as one entry.
func (b *Builder) AddRange(first, last netip.Addr) error {
	if err := checkRange(first, last); err != nil {
		return err
	}
	b.entries++
	if first.Is4() {
		b.v4 = append(b.v4, Range{number4(first), number4(last)})
		return nil
	}
	for _, p := range netipx.IPRangeFrom(first, last).Prefixes() {
		b.v6 = append(b.v6, prefix6From(p.Addr(), p.Bits()))
	}
	return nil
}

func checkRange(first, last netip.Addr) error {
	switch {
	case !first.IsValid() || !last.IsValid():
		return errors.New("adding a range with an invalid end")
	case first.Zone() != "" || last.Zone() != "":
		return errors.New("an address of a range has a zone, leave it out")
	case first.Is4() != last.Is4():
		return fmt.Errorf("the ends of range %s-%s are of different families", first, last)
	case last.Less(first):
		return fmt.Errorf("range %s-%s ends before it begins, swap the ends", first, last)
	}
	return nil
}

// Set returns the set of all entries and empties the builder.
func (b *Builder) Set() *Set {
	b.sort()
	v4 := b.v4
	if len(b.hosts) > 0 {
		v4 = joinHosts(b.hosts, v4)
	}
	s := &Set{v4: trim(v4), v6: trim(b.v6)}
	*b = Builder{}
	return s
}

// sort sorts the entries, and joins the ranges and the prefixes.
func (b *Builder) sort() {
	b.hosts = sortHosts(b.hosts)
	b.v4 = joinRanges(sortRanges(b.v4))
	b.v6 = aggregate(sortPrefixes(b.v6))
}

// mergeBuilders returns the entries of all builders, sorted. Each builder must be sorted. If there are several
// builders, the result is in memory of its own.
func mergeBuilders(all []Builder) Builder {
	if len(all) == 1 {
		return all[0]
	}
	a, b := mergeBuilders(all[:len(all)/2]), mergeBuilders(all[len(all)/2:])
	return Builder{
		hosts: mergeSorted(a.hosts, b.hosts, func(a, b *uint32) bool { return *a < *b }),
		v4:    mergeSorted(a.v4, b.v4, func(a, b *Range) bool { return a.First < b.First }),
		v6:    mergeSorted(a.v6, b.v6, func(a, b *prefix6) bool { return a.compare(*b) < 0 }),
	}
}

// mergeSorted returns the items of two sorted lists as one sorted list, in memory of its own.
func mergeSorted[T any](a, b []T, less func(a, b *T) bool) []T {
	if len(a)+len(b) == 0 {
		return nil
	}
	out := make([]T, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if less(&b[0], &a[0]) {
			out, b = append(out, b[0]), b[1:]
		} else {
			out, a = append(out, a[0]), a[1:]
		}
	}
	return append(append(out, a...), b...)
}

// grow reserves space for more entries: the current number multiplied by times.
func (b *Builder) grow(times float64) {
	b.hosts = slices.Grow(b.hosts, int(times*float64(len(b.hosts))))
	b.v4 = slices.Grow(b.v4, int(times*float64(len(b.v4))))
	b.v6 = slices.Grow(b.v6, int(times*float64(len(b.v6))))
}

// block4 returns the range of the addresses that share the first bits of a.
func block4(a uint32, bits int) Range {
	host := uint32(uint64(1)<<(32-bits) - 1)
	return Range{a &^ host, a | host}
}

// joinRanges joins the sorted ranges that overlap or touch, in place.
func joinRanges(ranges []Range) []Range {
	out := ranges[:0]
	for _, r := range ranges {
		out = appendRange(out, r)
	}
	return out
}

// appendRange appends a range, and joins it with the last one if they overlap or touch. It must not begin before the
// last one.
func appendRange(to []Range, r Range) []Range {
	n := len(to)
	if n == 0 || uint64(r.First) > uint64(to[n-1].Last)+1 {
		return append(to, r)
	}
	to[n-1].Last = max(to[n-1].Last, r.Last)
	return to
}

// joinHosts joins sorted hosts with sorted, disjoint ranges.
func joinHosts(hosts []uint32, ranges []Range) []Range {
	out := make([]Range, 0, len(hosts)+len(ranges))
	for _, h := range hosts {
		for len(ranges) > 0 && ranges[0].First <= h {
			out = appendRange(out, ranges[0])
			ranges = ranges[1:]
		}
		out = appendRange(out, Range{h, h})
	}
	for _, r := range ranges {
		out = appendRange(out, r)
	}
	return out
}

// trim returns a copy of a slice that wastes more than an eighth of its memory. Otherwise it returns the slice. Sets live long and may be large, so
// the copy is worth its time.
func trim[T any](s []T) []T {
	if cap(s)-len(s) > len(s)/8 {
		return append(make([]T, 0, len(s)), s...)
	}
	return s
}
