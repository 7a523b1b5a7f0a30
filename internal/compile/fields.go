package compile

import (
	"cmp"
	"slices"

	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
	"github.com/floodwall/floodwall/policy"
)

// fieldMatches turns the keys of a match, addresses apart, into tests of fields. A key that is absent adds none.
func fieldMatches(m policy.Match) []ir.Match {
	var out []ir.Match
	add := func(f packet.Field, values []ir.Range) {
		if values != nil {
			out = append(out, ir.Match{Field: f, Values: normalize(values)})
		}
	}
	add(packet.Proto, each(m.Proto, func(p uint8) []ir.Range { return single(uint32(p)) }))
	add(packet.DPort, each(m.Port, portValues))
	add(packet.SPort, each(m.SPort, portValues))
	add(packet.Family, each(m.Family, single))
	add(packet.Flags, each(m.Flags, flagValues))
	add(packet.ICMP, each(m.ICMP, icmpValues))
	add(packet.Length, each(m.Length, rangeValues))
	add(packet.TTL, each(m.TTL, rangeValues))
	add(packet.DSCP, each(m.DSCP, rangeValues))
	add(packet.Fragment, each(m.Fragment, single))
	add(packet.VLAN, each(m.VLAN, rangeValues))
	add(packet.State, each(m.State, single))
	return out
}

// each collects the values of all alternatives; nil stays nil.
func each[T any](alternatives []T, values func(T) []ir.Range) []ir.Range {
	var out []ir.Range
	for _, a := range alternatives {
		out = append(out, values(a)...)
	}
	return out
}

func single(v uint32) []ir.Range { return []ir.Range{{First: v, Last: v}} }

func rangeValues(r policy.Range) []ir.Range { return []ir.Range{{First: r.First, Last: r.Last}} }

func portValues(p policy.Port) []ir.Range {
	tcp := ir.Range{First: uint32(p.First), Last: uint32(p.Last)}
	udp := ir.Range{First: packet.PortUDP + tcp.First, Last: packet.PortUDP + tcp.Last}
	switch p.Proto {
	case protoTCP:
		return []ir.Range{tcp}
	case protoUDP:
		return []ir.Range{udp}
	}
	return []ir.Range{tcp, udp}
}

func flagValues(f policy.Flags) []ir.Range {
	var out []ir.Range
	for v := range uint32(packet.FlagsNone) {
		if uint8(v)&f.Mask == f.Value {
			out = append(out, ir.Range{First: v, Last: v})
		}
	}
	return out
}

func icmpValues(i policy.ICMP) []ir.Range {
	first := uint32(i.Type) << 8
	if i.V6 {
		first |= packet.ICMPv6
	}
	if i.Code >= 0 {
		return single(first | uint32(i.Code))
	}
	return []ir.Range{{First: first, Last: first | 0xff}}
}

// normalize sorts ranges and joins those that overlap or touch.
func normalize(ranges []ir.Range) []ir.Range {
	slices.SortFunc(ranges, func(a, b ir.Range) int { return cmp.Compare(a.First, b.First) })
	out := ranges[:0:0]
	for _, r := range ranges {
		if n := len(out); n > 0 && r.First <= out[n-1].Last+1 {
			out[n-1].Last = max(out[n-1].Last, r.Last)
			continue
		}
		out = append(out, r)
	}
	return out
}

// complement returns the values below size that are not in ranges, which are normalized.
func complement(ranges []ir.Range, size uint32) []ir.Range {
	out := []ir.Range{}
	next := uint32(0)
	for _, r := range ranges {
		if r.First > next {
			out = append(out, ir.Range{First: next, Last: r.First - 1})
		}
		next = r.Last + 1
	}
	if next < size {
		out = append(out, ir.Range{First: next, Last: size - 1})
	}
	return out
}

// also adds a test to tests of which each has a field of its own: two tests of a field become one of what both allow.
func also(tests []ir.Match, m ir.Match) []ir.Match {
	i := slices.IndexFunc(tests, func(t ir.Match) bool { return t.Field == m.Field })
	if i < 0 {
		return append(tests, m)
	}
	size := m.Field.Size()
	either := append(complement(tests[i].Values, size), complement(m.Values, size)...)
	tests[i].Values = complement(normalize(either), size)
	return tests
}
