package suggest

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// The bounds of narrowing.
const (
	kept      = 0.985 // of a rule's packets of the attack, that all keys together leave it
	trimmed   = 400   // one in so many packets may lie outside of a range at each of its ends
	strangers = 100   // one in so many packets may come from elsewhere
	common    = 0.9   // a key that more of the legitimate packets have is left out
	telling   = 0.5   // once a rule harms nothing, a key must be one that fewer of them have
	plenty    = 20    // packets of a kind that are enough to compare with; with fewer, all are taken
	mostList  = 6     // values that a key lists

	manyEnough = 200 // packets, from which a range of values is taken: the ends that fewer show are theirs, not the attack's
)

// narrow adds the keys that almost all packets of a rule share, and that tell them from legitimate ones. kind are the legitimate packets
// of the same kind: a rule that matches none of them in a small baseline may still be wide.
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

// narrower is a conjunction without the network that a key lies within, for a search that stopped at a wide one.
func narrower(c conjunction, t test) conjunction {
	if t.key == "from" {
		c.tests = slices.DeleteFunc(slices.Clone(c.tests), func(other test) bool { return other.key == t.key })
	}
	return c
}

// isPort reports whether a key asks for one port: it costs next to nothing, and a baseline may be too small to show what else comes
// from there.
func isPort(t test) bool {
	return (t.key == "port" || t.key == "sport") && !strings.ContainsAny(t.value, "[-")
}

// tells reports whether a key tells the attack from legitimate packets, of the same kind if there are enough.
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

// fitPorts are the ports, if they are few, or lie in less than half of all.
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

// fitTTL is the TTL, if the attack comes from places at few distances.
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

// fit are the values of a field that almost all packets have: a few, or the range that they are in. The range is never wider than what
// was seen.
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

// fewest are the most frequent keys, as many as it takes to count least together; nil when that is more than a key lists.
func fewest[K comparable](counts map[K]int, least int, compare func(a, b K) int) []K {
	list, sum := frequentBy(counts, 1, mostList, compare), 0
	for i, k := range list {
		if sum += counts[k]; sum >= least {
			return list[:i+1]
		}
	}
	return nil
}

// joined are ascending values as ranges.
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

// fitDNS is what almost all packets ask a resolver for.
func (s *search) fitDNS(in bitset) []test {
	least := max(1, in.count()-2*(in.count()/trimmed))
	names := s.nameCandidates(in, least)
	slices.SortStableFunc(names, func(a, b test) int { return cmp.Compare(len(b.value), len(a.value)) }) // the longest says most
	types := s.typeCandidates(in, least)
	return append(types[:min(1, len(types))], names[:min(1, len(names))]...)
}

// fitFrom are the sources, if they are few, or the network that they are in.
func (s *search) fitFrom(in bitset) []test { return s.fitAddresses(in, "from") }

// fitTo are the destinations, likewise.
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

// The parts of packets in which narrow looks for bytes that do not change. The ports, the flags and the checksum of TCP are not looked
// at; UDP's header has nothing that other keys do not have.
const (
	payloadEnd  = 48
	headerEnd   = 40
	longestRun  = 16 // bytes that the language compares at a place
	shortestRun = 2
)

var notCompared = map[int]bool{0: true, 1: true, 2: true, 3: true, 13: true, 16: true, 17: true}

// fitBytes are bytes at places that almost all packets have.
func (s *search) fitBytes(in bitset) []test {
	list := s.runs(in, false, payloadEnd)
	if proto := s.attack[in.first()].Value[packet.Proto]; proto == packet.ProtoTCP || proto == packet.ProtoICMP || proto == packet.ProtoICMPv6 {
		list = append(list, s.runs(in, true, headerEnd)...)
	}
	return list
}

// runs are the two longest runs of bytes, bytes of 0 not counted, that almost all packets have at the same place.
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

// constant is the byte that at least so many packets have at a place.
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
