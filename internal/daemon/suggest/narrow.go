// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Limits of narrowing.
const (
	kept      = 0.985 // least share of a rule's attack packets that must remain with all keys together
	trimmed   = 400   // one in this many packets may lie outside a range at each end
	strangers = 100   // one in this many packets may have another source than the source test allows
	common    = 0.9   // a key is left out if a larger share of the legitimate packets passes it
	telling   = 0.5   // when a rule does no harm, only keys that a smaller share of the legitimate packets passes are added
	plenty    = 20    // number of packets of the kind that suffice for the comparison; with fewer, all legitimate packets are compared
	mostList  = 6     // the most values of a key

	manyEnough = 200 // from this many packets on, ends of a range are trimmed; with fewer, the extremes are kept
)

// narrow adds the keys that almost all attack packets of a rule pass and that distinguish these from legitimate packets. kind is the set of
// legitimate packets of the same kind. It is compared because a rule that matches none of them in a small baseline may still be too wide.
func (s *search) narrow(c conjunction, kind bitset) conjunction {
	least := int(kept * float64(c.attack.count()))
	for _, fit := range []func(bitset) []test{s.fitPorts, s.fitDNS, s.fitLength, s.fitBytes, s.fitTTL, s.fitFrom, s.fitTo, s.fitFamily} {
		for _, t := range fit(c.attack) {
			asked := slices.ContainsFunc(c.tests, func(other test) bool { return other.key == t.key })
			if asked && t.key != "payload.at" && t.key != "from" {
				continue
			}
			if longer := s.with(narrower(c, t), t); longer.attack.count() >= least && (isPort(t) || s.tells(c, t, kind)) {
				c = longer
			}
		}
	}
	return c
}

// narrower returns the conjunction without its source network if t tests for the source, because t replaces that network. The search may have stopped
// at a wide network.
func narrower(c conjunction, t test) conjunction {
	if t.key == "from" {
		c.tests = slices.DeleteFunc(slices.Clone(c.tests), func(other test) bool { return other.key == t.key })
	}
	return c
}

// isPort reports whether a key tests for one port. Such a key is always added: it loses hardly any attack packets, and a small baseline may lack
// other traffic from the port.
func isPort(t test) bool {
	return (t.key == "port" || t.key == "sport") && !strings.ContainsAny(t.text, "[-")
}

// tells reports whether a key distinguishes the attack from legitimate packets. If there are enough legitimate packets of the same kind, only these
// are compared.
func (s *search) tells(c conjunction, t test, kind bitset) bool {
	if len(s.good) == 0 {
		return true
	}
	within := conjunction{attack: newBitset(len(s.attack)), good: kind}
	if kind.count() < plenty {
		within.good = fullBitset(len(s.good))
	}
	_, has := s.matching(within, t)
	part := ratio(has.count(), within.good.count())
	if c.good.count() == 0 {
		return part < telling
	}
	return part < common
}

// fitPorts returns tests for the ports, if there are few or if they lie within less than half of all ports.
func (s *search) fitPorts(in bitset) (list []test) {
	for _, f := range []packet.Field{packet.SPort, packet.DPort} {
		if r, ok := s.fit(in, f); ok && r[len(r)-1].Last < packet.PortNone && r[len(r)-1].Last-r[0].First < 1<<15 {
			list = append(list, valuesTest(f, r))
		}
	}
	return list
}

func (s *search) fitLength(in bitset) []test {
	r, ok := s.fit(in, packet.Length)
	if !ok {
		return nil
	}
	return []test{valuesTest(packet.Length, r)}
}

// fitTTL returns a test for the TTL, if the senders are at few distances.
func (s *search) fitTTL(in bitset) []test {
	r, ok := s.fit(in, packet.TTL)
	if !ok || r[len(r)-1].Last-r[0].First > 32 && len(r) == 1 {
		return nil
	}
	return []test{valuesTest(packet.TTL, r)}
}

func (s *search) fitFamily(in bitset) []test {
	r, ok := s.fit(in, packet.Family)
	if !ok || len(r) > 1 || r[0].First != r[0].Last {
		return nil
	}
	return []test{valuesTest(packet.Family, r)}
}

// fit returns the values of a field that almost all packets have: a few values, or the range that contains them. The range contains only values
// between the smallest and the largest observed value.
func (s *search) fit(in bitset, f packet.Field) ([]ir.Range, bool) {
	sorted := s.sorted(in, f)
	if len(sorted) == 0 {
		return nil, false
	}
	counts := values(s.attack, in, f)
	if few := fewest(counts, len(sorted)-2*(len(sorted)/trimmed), cmp.Compare[uint32]); few != nil {
		slices.Sort(few)
		return joined(few), true
	}
	if len(sorted) < manyEnough {
		return nil, false
	}
	cut := len(sorted) / trimmed
	return []ir.Range{{First: sorted[cut], Last: sorted[len(sorted)-1-cut]}}, true
}

// fewest returns the most frequent keys, as many as are needed so that their counts add up to `least`. It returns nil when a rule cannot list that
// many keys.
func fewest[K comparable](counts map[K]int, least int, compare func(a, b K) int) []K {
	list, sum := frequentBy(counts, 1, mostList, compare), 0
	for i, k := range list {
		if sum += counts[k]; sum >= least {
			return list[:i+1]
		}
	}
	return nil
}

// joined converts ascending values to ranges. Adjacent values become one range.
func joined(sorted []uint32) (list []ir.Range) {
	for _, v := range sorted {
		if n := len(list); n > 0 && list[n-1].Last+1 == v {
			list[n-1].Last = v
		} else {
			list = append(list, ir.Range{First: v, Last: v})
		}
	}
	return list
}

// fitDNS returns a test for the DNS query that almost all packets contain.
func (s *search) fitDNS(in bitset) []test {
	least := max(1, in.count()-2*(in.count()/trimmed))
	names := s.nameCandidates(in, least)
	slices.SortStableFunc(names, func(a, b test) int { return cmp.Compare(len(b.text), len(a.text)) }) // the longest is the most specific
	types := s.typeCandidates(in, least)
	return append(types[:min(1, len(types))], names[:min(1, len(names))]...)
}

// fitFrom returns a test for the sources if there are few, or for the network that contains them.
func (s *search) fitFrom(in bitset) []test { return s.fitAddresses(in, "from") }

// fitTo returns such a test for the destinations.
func (s *search) fitTo(in bitset) []test { return s.fitAddresses(in, "to") }

func (s *search) fitAddresses(in bitset, key string) []test {
	n := in.count()
	for at := range lengths4 {
		counts := map[netip.Prefix]int{}
		in.each(func(i int) { counts[prefixOf(s.attack[i].address(key), at)]++ })
		if list := fewest(counts, n-n/strangers, netip.Prefix.Compare); list != nil && (at == 0 || len(list) == 1) {
			return []test{prefixTest(key, list)}
		}
	}
	return nil
}

// The parts of packets in which narrow searches for constant bytes. It skips the ports, the flags and the checksum of TCP. It skips the header of
// UDP, because other keys test its fields.
const (
	payloadEnd  = 48
	headerEnd   = 40
	longestRun  = 16 // the largest number of bytes that a policy can compare at one offset
	shortestRun = 2
)

var notCompared = map[int]bool{0: true, 1: true, 2: true, 3: true, 13: true, 16: true, 17: true}

// fitBytes returns tests for bytes that almost all packets have at the same offset.
func (s *search) fitBytes(in bitset) []test {
	list := s.runs(in, false, payloadEnd)
	if proto := s.attack[in.first()].Value[packet.Proto]; proto == packet.ProtoTCP || proto == packet.ProtoICMP || proto == packet.ProtoICMPv6 {
		list = append(list, s.runs(in, true, headerEnd)...)
	}
	return list
}

// runs returns tests for the two longest byte sequences that almost all packets have at the same offset. Zero bytes do not count.
func (s *search) runs(in bitset, header bool, end int) []test {
	type run struct {
		offset int
		value  []byte
	}
	var list []run
	least := in.count() - in.count()/trimmed
	open := false
	for offset := range end {
		b, ok := s.constant(in, header, offset, least)
		ok = ok && !(header && notCompared[offset])
		switch {
		case ok && open && len(list[len(list)-1].value) < longestRun:
			list[len(list)-1].value = append(list[len(list)-1].value, b)
		case ok:
			list = append(list, run{offset, []byte{b}})
		}
		open = ok
	}
	told := func(r run) (n int) {
		for _, b := range r.value {
			if b != 0 {
				n++
			}
		}
		return 2*n + len(r.value)
	}
	list = slices.DeleteFunc(list, func(r run) bool { return len(r.value) < shortestRun || len(s.good) == 0 && told(r) == len(r.value) })
	slices.SortStableFunc(list, func(a, b run) int { return cmp.Compare(told(b), told(a)) })
	var tests []test
	for _, r := range list[:min(2, len(list))] {
		tests = append(tests, bytesTest(header, r.offset, r.value))
	}
	return tests
}

// constant returns the byte that at least `least` packets have at an offset.
func (s *search) constant(in bitset, header bool, offset, least int) (value byte, ok bool) {
	var counts [256]int
	in.each(func(i int) {
		if b := s.attack[i].bytes(header, offset); len(b) > 0 {
			counts[b[0]]++
		}
	})
	for v, n := range counts {
		if n >= least {
			return byte(v), true
		}
	}
	return 0, false
}
