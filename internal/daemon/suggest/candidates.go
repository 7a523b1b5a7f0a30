// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// perField is the number of most frequent values of a field, or of bytes at an offset, that become candidates.
const perField = 8

// Offsets in the payload, and in the TCP or ICMP header, at which the search compares four bytes.
var (
	payloadPlaces = []int{0, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56}
	headerPlaces  = []int{4, 8, 12, 16, 20, 24, 28}
)

// candidates returns tests that some of the attack's samples in the set pass. Each test is a candidate for a key of a rule.
func (s *search) candidates(in bitset) (list []test) {
	least := max(2, in.count()/20)
	for _, f := range []packet.Field{packet.DPort, packet.SPort, packet.Length, packet.TTL, packet.DSCP} {
		for _, v := range frequent(values(s.attack, in, f), least, perField) {
			if v != packet.PortNone {
				list = append(list, exactly(f, v))
			}
		}
	}
	for _, f := range []packet.Field{packet.Length, packet.TTL} {
		list = append(list, s.rangeCandidates(in, f)...)
	}
	list = append(list, s.prefixCandidates(in, least)...)
	list = append(list, s.typeCandidates(in, least)...)
	list = append(list, s.nameCandidates(in, least)...)
	list = append(list, s.byteCandidates(in, least, false, payloadPlaces)...)
	return append(list, s.byteCandidates(in, least, true, headerPlaces)...)
}

// rangeCandidates returns tests for ranges of a field's values: from a quantile to the smallest or largest value, and between two quantiles.
func (s *search) rangeCandidates(in bitset, f packet.Field) (list []test) {
	sorted := s.sorted(in, f)
	if len(sorted) == 0 {
		return nil
	}
	at := func(part float64) uint32 { return sorted[int(part*float64(len(sorted)-1))] }
	for _, q := range [][2]float64{{0, 0.5}, {0, 0.9}, {0.1, 1}, {0.5, 1}, {0.25, 0.75}, {0.05, 0.95}, {0.01, 0.99}} {
		list = append(list, valuesTest(f, []ir.Range{{First: at(q[0]), Last: at(q[1])}}))
	}
	return list
}

// sorted returns the values of a field, in ascending order.
func (s *search) sorted(in bitset, f packet.Field) (list []uint32) {
	in.each(func(i int) { list = append(list, s.attack[i].Value[f]) })
	slices.Sort(list)
	return list
}

// The prefix lengths that the search tries, the longest first. Among prefixes with the same packets it uses the first.
var (
	lengths4 = []int{32, 24, 20, 16, 12, 8}
	lengths6 = []int{128, 64, 56, 48, 40, 32}
)

// prefixOf returns the prefix of an address. at is the index of the prefix length in the lists above.
func prefixOf(a netip.Addr, at int) netip.Prefix {
	length := lengths6[at]
	if a.Is4() {
		length = lengths4[at]
	}
	p, _ := a.Prefix(length)
	return p
}

func (s *search) prefixCandidates(in bitset, least int) (list []test) {
	for _, key := range []string{"from", "to"} {
		for at := range lengths4 {
			counts := map[netip.Prefix]int{}
			in.each(func(i int) { counts[prefixOf(s.attack[i].address(key), at)]++ })
			for _, p := range frequentBy(counts, least, perField, netip.Prefix.Compare) {
				list = append(list, prefixTest(key, []netip.Prefix{p}))
			}
		}
	}
	return list
}

// typeCandidates returns tests for the query types of DNS queries.
func (s *search) typeCandidates(in bitset, least int) (list []test) {
	counts := map[uint32]int{}
	in.each(func(i int) {
		if isQuery(&s.attack[i]) {
			counts[s.attack[i].Value[packet.DNS]]++
		}
	})
	for _, v := range frequent(counts, least, perField) {
		list = append(list, typeTest(v))
	}
	return list
}

// nameCandidates returns tests for the names in DNS queries, and for their parent domains.
func (s *search) nameCandidates(in bitset, least int) (list []test) {
	counts := map[string]int{}
	in.each(func(i int) {
		if !isQuery(&s.attack[i]) {
			return
		}
		name := s.attack[i].name
		for more := name != ""; more; _, name, more = strings.Cut(name, ".") {
			counts[name]++
		}
	})
	for _, name := range frequent(counts, least, perField) {
		if _, err := policy.Domain(name); err == nil {
			list = append(list, nameTest(name))
		}
	}
	return list
}

func (s *search) byteCandidates(in bitset, least int, header bool, offsets []int) (list []test) {
	const width = 4
	for _, offset := range offsets {
		counts := map[uint32]int{}
		in.each(func(i int) {
			if header && s.attack[i].Payload == nil {
				return
			}
			if b := s.attack[i].bytes(header, offset); len(b) >= width {
				counts[binary.BigEndian.Uint32(b)]++
			}
		})
		for _, value := range frequent(counts, least, 3) {
			list = append(list, bytesTest(header, offset, binary.BigEndian.AppendUint32(nil, value)))
		}
	}
	return list
}
