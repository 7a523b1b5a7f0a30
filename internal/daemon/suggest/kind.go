// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"cmp"
	"slices"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// kind is the kind of a packet. The search treats kinds separately, because no rule covers packets of two kinds.
type kind struct {
	family, proto, fragment, flags, icmp uint32
}

func kindOf(s *Sample) kind {
	k := kind{
		family: s.Value[packet.Family], proto: s.Value[packet.Proto], fragment: s.Value[packet.Fragment],
		flags: s.Value[packet.Flags], icmp: s.Value[packet.ICMP],
	}
	if k.flags != packet.FlagsNone {
		k.flags &= flagsMask
	}
	return k
}

// tests returns the tests that all packets of a kind pass.
func (k kind) tests() []test {
	list := []test{exactly(packet.Proto, k.proto)}
	if k.flags == packet.FlagsNone && k.icmp == packet.ICMPNone || k.fragment != packet.FragmentNone {
		list = append(list, exactly(packet.Fragment, k.fragment))
	}
	if k.flags != packet.FlagsNone {
		list = append(list, flagsTest(k.flags))
	}
	if k.icmp != packet.ICMPNone {
		list = append(list, exactly(packet.ICMP, k.icmp))
	}
	return list
}

// wide returns the kind without the fields of TCP and ICMP, which a flood may randomize.
func (k kind) wide() kind {
	k.flags, k.icmp = packet.FlagsNone, packet.ICMPNone
	return k
}

// kinds returns the kinds with at least `least` samples, the most frequent first, followed by the wide kinds. Because of the threshold, randomized
// fields do not make the number of kinds grow with the number of samples.
func kinds(samples []Sample, least int) []kind {
	counts, wide := map[kind]int{}, map[kind]int{}
	for i := range samples {
		k := kindOf(&samples[i])
		counts[k]++
		wide[k.wide()]++
	}
	order := func(a, b kind) int {
		return cmp.Or(cmp.Compare(a.proto, b.proto), cmp.Compare(a.family, b.family), cmp.Compare(a.flags, b.flags),
			cmp.Compare(a.fragment, b.fragment), cmp.Compare(a.icmp, b.icmp))
	}
	list := frequentBy(counts, least, len(counts), order)
	for _, k := range frequentBy(wide, least, len(wide), order) {
		if counts[k] == 0 {
			list = append(list, k)
		}
	}
	return list
}

// values returns how often each value of a field occurs among samples.
func values(samples []Sample, in bitset, f packet.Field) map[uint32]int {
	counts := map[uint32]int{}
	in.each(func(i int) { counts[samples[i].Value[f]]++ })
	return counts
}

// frequent returns the keys with the highest counts, the highest first. It returns at most `most` keys, whose counts are at least `least`. Among
// equal counts the lower key is first.
func frequent[K cmp.Ordered](counts map[K]int, least, most int) []K {
	return frequentBy(counts, least, most, cmp.Compare[K])
}

// frequentBy returns the same as frequent, but orders keys with equal counts by compare.
func frequentBy[K comparable](counts map[K]int, least, most int, compare func(a, b K) int) []K {
	var list []K
	for k, n := range counts {
		if n >= least {
			list = append(list, k)
		}
	}
	slices.SortFunc(list, func(a, b K) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), compare(a, b)) })
	return list[:min(most, len(list))]
}
