// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"net/netip"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// decoded is the result of packet.Decode for a frame of a kind: the fields, the addresses and the failed checks as formulas. It follows the RFCs and
// packet.Decode, and uses nothing of the compiler. TestDecoded compares it with packet.Decode.
type decoded struct {
	*smt.Context
	frame *frame
	kind  kind

	usual     *smt.Term // the frame is no fragment; all other formulas hold only for such frames
	malformed *smt.Term
	failed    [packet.NumChecks]*smt.Term
	field     [packet.NumKeys]*smt.Term // of 32 bits
	source    []*smt.Term               // the bytes of the addresses
	dest      []*smt.Term
	total     *smt.Term // the length of the IP packet, 32 bits
	rest      *smt.Term // the available bytes after the IP header, 32 bits
	payload   int       // the offset of the L4 header
}

func decode(c *smt.Context, f *frame, k kind) *decoded {
	d := &decoded{Context: c, frame: f, kind: k, malformed: c.False(), payload: k.ip() + k.ipHeader()}
	for i := range d.failed {
		d.failed[i] = c.False()
	}
	for _, none := range []struct {
		field packet.Field
		value uint64
	}{
		{packet.DPort, packet.PortNone}, {packet.SPort, packet.PortNone}, {packet.Flags, packet.FlagsNone}, {packet.ICMP, packet.ICMPNone},
		{packet.VLAN, packet.VLANNone}, {packet.DNS, packet.DNSNone}, {packet.MSS, packet.MSSNone}, {packet.Fragment, packet.FragmentNone},
		{packet.Verified, 0}, {packet.Proto, uint64(k.proto)}, {packet.Family, flag(k.v6)},
	} {
		d.field[none.field] = d.n(none.value)
	}
	d.field[packet.State] = c.Var("state", 32) // arbitrary, because the frame does not determine the state
	d.fail(packet.SourceMAC, d.bit(6, 0))
	if k.tagged {
		d.field[packet.VLAN] = d.word(c.BitAnd(f.number(14, 2), c.Const(16, 0x0fff)))
	}
	if k.v6 {
		d.ipv6()
	} else {
		d.ipv4()
	}
	d.addresses()
	switch k.proto {
	case protoTCP:
		d.tcp()
	case protoUDP:
		d.udp()
	case 0:
		d.otherProtocol()
	default:
		d.icmp()
	}
	for check := range d.failed { // no other field of a packet without a readable header is read
		switch packet.Check(check) {
		case packet.Truncated, packet.IPHeader, packet.SourceMAC:
		default:
			d.failed[check] = c.And(d.failed[check], c.Not(d.malformed))
		}
	}
	return d
}

func flag(v bool) uint64 {
	if v {
		return 1
	}
	return 0
}

// n returns a 32-bit constant. word extends a shorter number to 32 bits.
func (d *decoded) n(v uint64) *smt.Term             { return d.Const(32, v) }
func (d *decoded) word(t *smt.Term) *smt.Term       { return d.ZExt(t, 32) }
func (d *decoded) at(place, size int) *smt.Term     { return d.frame.number(place, size) }
func (d *decoded) l4(place, size int) *smt.Term     { return d.frame.number(d.payload+place, size) }
func (d *decoded) fail(c packet.Check, t *smt.Term) { d.failed[c] = d.Or(d.failed[c], t) }

// is returns a formula that holds if a number has a value.
func (d *decoded) is(t *smt.Term, v uint64) *smt.Term { return d.Eq(t, d.Const(t.Width, v)) }

// bit returns a formula that holds if a bit of a byte is set.
func (d *decoded) bit(place int, number uint8) *smt.Term {
	return d.is(d.Extract(d.frame.byte(place), number, 1), 1)
}

// behind returns the number of the frame's bytes after an offset; 0 if the frame ends before the offset.
func (d *decoded) behind(place int) *smt.Term {
	length, at := d.Extract(d.frame.length, 0, 32), d.n(uint64(place))
	return d.Ite(d.ULT(length, at), d.n(0), d.Sub(length, at))
}

func (d *decoded) smaller(a, b *smt.Term) *smt.Term { return d.Ite(d.ULT(a, b), a, b) }

// ipv4 reads an IPv4 header without options (RFC 791).
func (d *decoded) ipv4() {
	ip := d.kind.ip()
	have := d.behind(ip)
	d.total = d.word(d.at(ip+2, 2))
	d.usual = d.And(d.is(d.BitAnd(d.at(ip+6, 2), d.Const(16, 0x3fff)), 0))
	short := d.ULT(have, d.n(20))
	contradicts := d.And(d.Not(short), d.ULT(d.total, d.n(20)))
	d.malformed = d.Or(short, contradicts)
	d.fail(packet.Truncated, d.Or(short, d.ULT(have, d.total)))
	d.fail(packet.IPHeader, contradicts)
	d.field[packet.Length] = d.total
	d.field[packet.DSCP] = d.word(d.Extract(d.frame.byte(ip+1), 2, 6))
	d.field[packet.TTL] = d.word(d.frame.byte(ip + 8))
	d.fail(packet.TTLZero, d.is(d.frame.byte(ip+8), 0))
	d.fail(packet.IPChecksum, d.Not(d.wholeHeader(ip)))
	d.source, d.dest = d.bytes(ip+12, 4), d.bytes(ip+16, 4)
	whole := d.smaller(d.total, have)
	d.rest = d.Sub(whole, d.n(20))
}

// wholeHeader returns a formula that holds if the checksum of an IPv4 header without options is right (RFC 1071): the sum of the header's words, in
// any byte order, is a multiple of 2^16-1. z3 cannot prove tests of divisibility with 64 bits, so the formula multiplies with the inverse instead.
// TestChecksum compares it with packet.Decode.
func (d *decoded) wholeHeader(ip int) *smt.Term {
	const (
		inverse  = 0xfffefffefffeffff
		quotient = 0x0001000100010001
	)
	sum := d.ZExt(d.frame.load(ip, 4), 64)
	for at := 4; at < 20; at += 4 {
		sum = d.Add(sum, d.ZExt(d.frame.load(ip+at, 4), 64))
	}
	return d.ULE(d.Mul(sum, d.Const(64, inverse)), d.Const(64, quotient))
}

// ipv6 reads an IPv6 header without extension headers (RFC 8200).
func (d *decoded) ipv6() {
	ip := d.kind.ip()
	have := d.behind(ip)
	d.total = d.Add(d.word(d.at(ip+4, 2)), d.n(40))
	d.usual = d.True()
	d.malformed = d.ULT(have, d.n(40))
	d.fail(packet.Truncated, d.Or(d.malformed, d.ULT(have, d.total)))
	d.field[packet.Length] = d.smaller(d.total, d.n(65535))
	d.field[packet.DSCP] = d.word(d.Extract(d.at(ip, 2), 6, 6))
	d.field[packet.TTL] = d.word(d.frame.byte(ip + 7))
	d.fail(packet.TTLZero, d.is(d.frame.byte(ip+7), 0))
	d.source, d.dest = d.bytes(ip+8, 16), d.bytes(ip+24, 16)
	d.rest = d.Sub(d.smaller(d.total, have), d.n(40))
}

func (d *decoded) bytes(at, n int) (list []*smt.Term) {
	for i := range n {
		list = append(list, d.frame.byte(at+i))
	}
	return list
}

// halves returns an address as two 64-bit numbers. IPv4 is in mapped form.
func (d *decoded) halves(a []*smt.Term) (hi, lo *smt.Term) {
	if len(a) == 4 {
		return d.Const(64, 0), d.Concat(d.Const(32, 0xffff), d.joined(a))
	}
	return d.joined(a[:8]), d.joined(a[8:])
}

func (d *decoded) joined(bytes []*smt.Term) *smt.Term {
	t := bytes[0]
	for _, b := range bytes[1:] {
		t = d.Concat(t, b)
	}
	return t
}

// within returns a formula that holds if an address is in a prefix.
func (d *decoded) within(a []*smt.Term, p netip.Prefix) *smt.Term {
	want := p.Addr().AsSlice()
	if len(want) != len(a) {
		return d.False()
	}
	out, left := d.True(), p.Bits()
	for i := 0; left > 0; i++ {
		n := uint8(min(left, 8))
		out = d.And(out, d.is(d.Extract(a[i], 8-n, n), uint64(want[i])>>(8-n)))
		left -= int(n)
	}
	return out
}

func (d *decoded) withinAny(a []*smt.Term, list []netip.Prefix) *smt.Term {
	out := d.False()
	for _, p := range list {
		out = d.Or(out, d.within(a, p))
	}
	return out
}

// addresses evaluates the checks of addresses.
func (d *decoded) addresses() {
	same := d.True()
	for i := range d.source {
		same = d.And(same, d.Eq(d.source[i], d.dest[i]))
	}
	d.fail(packet.Land, same)
	d.fail(packet.SourceAddress, d.withinAny(d.source, packet.InvalidSources))
	nat64 := d.within(d.source, netip.MustParsePrefix("64:ff9b::/96"))
	none := d.Or(d.within(d.source, netip.MustParsePrefix("::/128")), d.within(d.source, netip.MustParsePrefix("fe80::/10")))
	starts := d.False() // holds if the sender requests an address, or communicates only on the link
	switch d.kind.proto {
	case protoUDP:
		starts = d.Or(none, d.within(d.source, netip.MustParsePrefix("0.0.0.0/32")))
	case protoICMPv6:
		starts = none
	}
	d.fail(packet.BogonSource, d.And(d.withinAny(d.source, packet.Bogons), d.Not(nat64), d.Not(starts)))
}

// whole returns a formula that holds if a header of the given length is complete. An incomplete header fails a check.
func (d *decoded) whole(header uint64) *smt.Term {
	whole := d.ULE(d.n(header), d.rest)
	d.fail(packet.Truncated, d.Not(whole))
	return whole
}

// ports reads both ports if the header is complete.
func (d *decoded) ports(whole *smt.Term, base uint64) {
	none := d.n(packet.PortNone)
	d.field[packet.SPort] = d.Ite(whole, d.Concat(d.Const(16, base>>16), d.l4(0, 2)), none)
	d.field[packet.DPort] = d.Ite(whole, d.Concat(d.Const(16, base>>16), d.l4(2, 2)), none)
}

// udp reads a UDP header (RFC 768).
func (d *decoded) udp() {
	whole := d.whole(8)
	d.ports(whole, packet.PortUDP)
	d.field[packet.DNS] = d.Ite(whole, d.Var("dns", 32), d.n(packet.DNSNone)) // arbitrary: no decision of the entry depends on it
	d.field[packet.Verified] = d.word(d.Var("verified", 1))
	size := d.word(d.l4(4, 2))
	d.fail(packet.UDPLength, d.And(whole, d.Or(d.ULT(size, d.n(8)), d.ULT(d.rest, size))))
	d.fail(packet.PortZero, d.And(whole, d.is(d.l4(2, 2), 0)))
	d.fail(packet.UDPSourceZero, d.And(whole, d.is(d.l4(0, 2), 0)))
	reflector := d.False()
	for _, port := range packet.ReflectorPorts {
		reflector = d.Or(reflector, d.is(d.l4(0, 2), uint64(port)))
	}
	d.fail(packet.ReflectorSource, d.And(whole, reflector))
	if d.kind.v6 {
		d.fail(packet.UDP6Checksum, d.And(whole, d.is(d.l4(6, 2), 0)))
	}
}

// otherProtocol sets the fields of a packet of another protocol.
func (d *decoded) otherProtocol() {
	proto := d.word(d.frame.byte(d.kind.protoAt()))
	d.field[packet.Proto] = proto
	d.fail(packet.IPProtocol, d.Or(d.And(d.ULE(d.n(148), proto), d.ULE(proto, d.n(252))), d.is(proto, 255)))
}

// icmp reads an ICMP (RFC 792) or ICMPv6 (RFC 4443) header.
func (d *decoded) icmp() {
	whole := d.whole(8)
	base, echo := uint64(0), uint64(8)
	of := d.l4(0, 1)
	if d.kind.v6 {
		base, echo = packet.ICMPv6, 128
		discovery := d.And(d.ULE(d.Const(8, 133), of), d.ULE(of, d.Const(8, 137)))
		d.fail(packet.NDHopLimit, d.And(whole, discovery, d.Not(d.is(d.field[packet.TTL], 255))))
	} else {
		for _, obsolete := range []uint64{4, 5, 13, 14, 15, 16, 17, 18} {
			d.fail(packet.ICMPType, d.And(whole, d.is(of, obsolete)))
		}
	}
	d.field[packet.ICMP] = d.Ite(whole, d.Concat(d.Const(16, base>>16), d.l4(0, 2)), d.n(packet.ICMPNone))
	d.fail(packet.ICMPLarge, d.And(whole, d.is(of, echo), d.ULT(d.n(1024), d.field[packet.Length])))
}

// has returns a formula that holds if a field has one of a rule's values.
func (d *decoded) has(m ir.Match) *smt.Term {
	out := d.False()
	v := d.field[m.Field]
	for _, r := range m.Values {
		in := d.ULE(v, d.n(uint64(r.Last)))
		switch {
		case r.First == r.Last:
			in = d.is(v, uint64(r.First))
		case r.First > 0:
			in = d.And(d.ULE(d.n(uint64(r.First)), v), in)
		}
		out = d.Or(out, in)
	}
	return out
}
