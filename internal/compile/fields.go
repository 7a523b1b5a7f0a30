// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
	"github.com/floodwall/floodwall/policy"
)

// fieldMatches converts all keys of a match except the addresses to tests of fields. A key that is not set adds no test.
func fieldMatches(m policy.Match) []ir.Match {
	var out []ir.Match
	add := func(f packet.Field, values []ir.Range) {
		if values != nil {
			out = append(out, ir.Match{Field: f, Values: ranges.Normalize(values)})
		}
	}
	add(packet.Proto, each(m.Proto, func(p uint8) []ir.Range { return ranges.Of(uint32(p)) }))
	add(packet.DPort, each(m.Port, portValues))
	add(packet.SPort, each(m.SPort, portValues))
	add(packet.Family, each(m.Family, ranges.Of))
	add(packet.Flags, each(m.Flags, flagValues))
	add(packet.ICMP, each(m.ICMP, icmpValues))
	add(packet.Length, each(m.Length, rangeValues))
	add(packet.TTL, each(m.TTL, rangeValues))
	add(packet.DSCP, each(m.DSCP, rangeValues))
	add(packet.MSS, each(m.MSS, rangeValues))
	add(packet.Fragment, each(m.Fragment, ranges.Of))
	add(packet.VLAN, each(m.VLAN, rangeValues))
	add(packet.State, each(m.State, ranges.Of))
	return out
}

// each returns the values of all alternatives in one list. It returns nil if alternatives is nil.
func each[T any](alternatives []T, values func(T) []ir.Range) []ir.Range {
	var out []ir.Range
	for _, a := range alternatives {
		out = append(out, values(a)...)
	}
	return out
}

func rangeValues(r policy.Range) []ir.Range { return []ir.Range{{First: r.First, Last: r.Last}} }

func portValues(p policy.Port) []ir.Range {
	tcp := ir.Range{First: uint32(p.First), Last: uint32(p.Last)}
	udp := ir.Range{First: packet.PortUDP + tcp.First, Last: packet.PortUDP + tcp.Last}
	switch p.Proto {
	case packet.ProtoTCP:
		return []ir.Range{tcp}
	case packet.ProtoUDP:
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
		return ranges.Of(first | uint32(i.Code))
	}
	return []ir.Range{{First: first, Last: first | 0xff}}
}
