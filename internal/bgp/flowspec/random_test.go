// SPDX-License-Identifier: Apache-2.0

package flowspec

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// drawn generates random flow specifications as bytes. It uses few prefixes, ports and other values, and packets have the same values.
type drawn struct {
	*rand.Rand
	ipv6 bool
}

func pick[T any](d drawn, list ...T) T { return list[d.IntN(len(list))] }

// drawnPrefixes are prefixes that contain one another, and separate ones.
var drawnPrefixes = map[bool][]string{
	false: {"192.0.2.0/24", "192.0.2.0/25", "192.0.2.7/32", "192.0.2.128/25", "198.51.100.0/22", "198.51.100.9/32", "0.0.0.0/0"},
	true:  {"2001:db8::/32", "2001:db8:1::/48", "2001:db8:1::7/128", "2001:db8:2::/61", "::/0"},
}

var drawnValues = map[Type][]uint64{
	Protocol: {1, 6, 17, 47, 58, 256}, Port: {53, 80, 443, 70000}, DestinationPort: {53, 80, 1024}, SourcePort: {53, 123, 40000},
	ICMPType: {0, 3, 8, 128, 135}, ICMPCode: {0, 1, 4}, TCPFlags: {0, 1, 2, 0x12, 0x10, 0xff}, Length: {40, 60, 128, 1500, 100000},
	DSCP: {0, 46, 0xee}, Fragment: {2, 4, 6, 0x0a, 0x0e, 0},
}

// body returns a random flow specification without its length. Floodwall must refuse some of them.
func (d drawn) body() (b []byte) {
	for t := Destination; t <= Fragment; t++ {
		if d.IntN(4) > 0 && (t != Destination || d.IntN(3) == 0) {
			continue
		}
		b = append(b, byte(t))
		if t.prefixed() {
			p := netip.MustParsePrefix(pick(d, drawnPrefixes[d.ipv6]...))
			b = append(b, byte(p.Bits()))
			if d.ipv6 {
				b = append(b, 0)
			}
			b = append(b, p.Addr().AsSlice()[:(p.Bits()+7)/8]...)
			continue
		}
		var terms []term
		for range 1 + d.IntN(3) {
			v := pick(d, drawnValues[t]...)
			if d.IntN(6) == 0 && v > 0 {
				v--
			}
			op := byte(d.IntN(8)) | byte(d.IntN(2))*opAnd
			if t.bitmask() {
				op &= opAnd | opNot | opMatch
			}
			terms = append(terms, term{op: op, value: v})
		}
		b = append(b, writeTerms(terms)...)
	}
	return b
}

// flow returns a random flow specification that Floodwall accepts, and its bytes.
func (d drawn) flow() (Flow, []byte) {
	for {
		body := d.body()
		if len(body) == 0 || len(body) >= longLength {
			continue
		}
		if f, _, err := Decode(append([]byte{byte(len(body))}, body...), d.ipv6); err == nil {
			return f, body
		}
	}
}

// frame returns a random packet with values for which the flow specifications test.
func (d drawn) frame() ([]byte, packet.Packet) {
	hints := packet.Hints{}
	for _, ipv6 := range []bool{false, true} {
		for _, p := range drawnPrefixes[ipv6][:len(drawnPrefixes[ipv6])-1] {
			hints.Addrs = append(hints.Addrs, netip.MustParsePrefix(p))
		}
	}
	for t := Protocol; t <= Fragment; t++ {
		f, ok := fieldOf[t]
		if !ok {
			continue
		}
		for _, v := range drawnValues[t] {
			if v < uint64(f.Size()) {
				hints.Values[f] = append(hints.Values[f], uint32(v))
			}
			if f == packet.DPort || f == packet.SPort {
				hints.Values[f] = append(hints.Values[f], uint32(v)+packet.PortUDP)
			}
		}
	}
	hints.Values[packet.ICMP] = []uint32{0x0304, 0x0800, packet.ICMPv6 | 128<<8, packet.ICMPv6 | 135<<8}
	spec := packet.RandomSpec(d.Rand, hints)
	return spec.Frame(), spec.Packet()
}

// writeTerms returns the wire form of terms. Each value has as few bytes as possible.
func writeTerms(terms []term) []byte {
	var b []byte
	for i, t := range terms {
		length := 0
		for length < 3 && t.value>>(8<<length) != 0 {
			length++
		}
		op := t.op | byte(length)<<4
		if i == len(terms)-1 {
			op |= opEnd
		}
		var wide [8]byte
		binary.BigEndian.PutUint64(wide[:], t.value)
		b = append(append(b, op), wide[8-1<<length:]...)
	}
	return b
}
