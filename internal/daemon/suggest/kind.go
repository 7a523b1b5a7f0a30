package suggest

import (
	"cmp"
	"slices"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// kind tells attacks of different vectors apart before any search: packets of two kinds are never covered by one rule.
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

// tests are the keys that all packets of a kind have.
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

// wide is the kind without what TCP and ICMP tell apart: a flood may draw these at random.
func (k kind) wide() kind {
	k.flags, k.icmp = packet.FlagsNone, packet.ICMPNone
	return k
}

// kinds are those of at least so many samples, the most frequent first, and then the wide ones. What somebody draws at random makes no
// number of kinds that grows with the samples.
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

// values counts the values of a field among samples.
func values(samples []Sample, in bitset, f packet.Field) map[uint32]int {
	counts := map[uint32]int{}
	in.each(func(i int) { counts[samples[i].Value[f]]++ })
	return counts
}

// frequent are the keys of the highest counts that reach least, at most so many, the highest first; of equal counts the lower key.
func frequent[K cmp.Ordered](counts map[K]int, least, most int) []K {
	return frequentBy(counts, least, most, cmp.Compare[K])
}

// frequentBy is frequent for keys of another order.
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
