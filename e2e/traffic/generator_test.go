// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// networks is the number of source prefixes: 10.N.0.0/16 and 2001:db8:N::/48.
const networks = 8

var (
	ports   = []uint16{53, 80, 443, 2222, 27015}
	targets = [2][]netip.Addr{
		{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")},
		{netip.MustParseAddr("2001:db8:ffff::1"), netip.MustParseAddr("2001:db8:ffff::2")},
	}
	protos = []uint8{protoTCP, protoTCP, protoTCP, protoUDP, protoUDP, protoUDP, protoGRE, protoSCTP, protoUDPLite}
)

// generator draws random attempts.
type generator struct {
	*rand.Rand
	next     uint32 // number of the next attempt
	metadata bool   // attempts may have VLAN tags in the frame's metadata

	connections []*connection // connections for attempts with data
}

func (g *generator) oneIn(n int) bool { return g.IntN(n) == 0 }

func pick[T any](g *generator, list ...T) T { return list[g.IntN(len(list))] }

// source returns the source address of an attempt, which identifies the attempt.
func (g *generator) source(v6 bool, number uint32) netip.Addr {
	n := byte(g.IntN(networks))
	if !v6 {
		return netip.AddrFrom4([4]byte{10, n, byte(number >> 8), byte(number)})
	}
	b := netip.MustParseAddr("2001:db8::").As16()
	b[5] = n
	binary.BigEndian.PutUint16(b[14:], uint16(number))
	return netip.AddrFrom16(b)
}

// attempt draws a random attempt of a kind.
func (g *generator) attempt(k kind) *attempt {
	v6 := k == extensions || k != options && g.oneIn(2)
	a := &attempt{kind: k, proto: pick(g, protos...), flags: flagSYN, formed: true}
	if k == tiny {
		a.proto = protoTCP
	}
	if g.next%(1<<16) >= firstConnection {
		g.next += numConnections
	}
	a.src = g.source(v6, g.next)
	g.next++
	if v6 {
		a.dst = pick(g, targets[1]...)
	} else {
		a.dst = pick(g, targets[0]...)
	}
	if a.proto == protoTCP || a.proto == protoUDP || a.proto == protoUDPLite {
		a.sport, a.dport = pick(g, 1024, 40000, 53, uint16(1+g.IntN(65535))), pick(g, ports...)
	}
	size := pick(g, 0, 1, 8, 20, 64, 200, 800, 1200)
	if k == plain || k == padding {
		size = pick(g, 0, 1, 8, 30, 64, 200, 800)
	}
	payload := make([]byte, size)
	for i := range payload {
		payload[i] = byte(g.Uint32())
	}
	switch {
	case a.proto == protoTCP && g.oneIn(2) && g.onConnection(a, v6):
		payload = append(payload, 1) // no socket would show a segment without data
	case a.proto == protoTCP:
		payload = nil // another check tests SYNs with data
	}
	body := a.segment(payload)
	if k == datagramLengths || g.also() {
		a.lieInside(g, body)
	}
	h := header{ttl: pick[uint8](g, 64, 64, 64, 5, 255), dscp: pick[uint8](g, 0, 0, 46), id: g.next}
	if k == headers || g.seldom() {
		a.odd(g, &h)
	}
	if v6 {
		a.six(g, h, body)
	} else {
		a.four(g, h, body)
	}
	return a
}

// also decides at random whether an attempt gets one more variation.
func (g *generator) also() bool { return g.oneIn(12) }

// seldom decides at random whether an attempt gets a variation that hides its main one.
func (g *generator) seldom() bool { return g.oneIn(12 * 12) }

// lieInside puts a wrong length or a wrong checksum into the L4 header.
func (a *attempt) lieInside(g *generator, body []byte) {
	a.formed = false
	switch {
	case a.proto == protoUDP && g.oneIn(4):
		binary.BigEndian.PutUint16(body[6:], pick[uint16](g, 0, 0x1234))
	case a.proto == protoUDP:
		n := pick(g, 0, 0, 7, 8, uint16(len(body)-1), uint16(len(body)+1), uint16(len(body)+100), 65535)
		binary.BigEndian.PutUint16(body[4:], n)
		binary.BigEndian.PutUint16(body[6:], 0)
		if a.dst.Is6() {
			covered := len(body) // a length of 0 means the whole packet
			if n >= 8 && int(n) < len(body) {
				covered = int(n)
			}
			binary.BigEndian.PutUint16(body[6:], sum(body[:covered], a.pseudo(covered)))
		}
	case a.proto == protoTCP:
		body[12] = pick[uint8](g, 0, 4, 5, 7, 15) << 4
		binary.BigEndian.PutUint16(body[16:], 0)
		binary.BigEndian.PutUint16(body[16:], sum(body, a.pseudo(len(body))))
	}
}

// odd draws a rare value for a field of the IP header.
func (a *attempt) odd(g *generator, h *header) {
	a.formed = false
	switch g.IntN(3) {
	case 0:
		h.ttl = pick[uint8](g, 0, 1, 2)
	case 1:
		h.badSum = true
	default:
		h.dscp = uint8(g.IntN(64))
	}
}

// piece is a range of bytes of the part that can be fragmented.
type piece struct {
	from, to int
	more     bool
}

// cut draws fragments in order and without gaps. Then it may reorder or repeat them. For the kind overlaps, it adds fragments that overlap, or whose
// length is not a multiple of 8.
func (g *generator) cut(a *attempt, n int) (list []piece) {
	unit := func() int {
		switch {
		case a.kind == tiny:
			return pick(g, 8, 8, 16, 24)
		case g.oneIn(3):
			return 8 * (1 + g.IntN(3))
		}
		return 8 * (1 + g.IntN(max(1, n/8)))
	}
	for at := 0; at < n; {
		to := min(at+unit(), n)
		if len(list) > 40 {
			to = n
		}
		list = append(list, piece{at, to, to < n})
		at = to
	}
	if g.oneIn(3) {
		g.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	if g.oneIn(4) {
		list = append(list, list[g.IntN(len(list))])
	}
	if a.kind != overlaps {
		return list
	}
	a.formed = false
	for range 1 + g.IntN(3) {
		from := 8 * g.IntN(n/8+1)
		to := min(n, from+pick(g, 8, 16, 20, 23, 24, 64))
		if to > from {
			list = slices.Insert(list, g.IntN(len(list)+1), piece{from, to, to < n || g.oneIn(4)})
		}
	}
	return list
}

// fragmented decides whether an attempt is fragmented.
func (g *generator) fragmented(a *attempt, n int) bool {
	return n > 8 && (a.kind == fragments || a.kind == tiny || a.kind == overlaps || g.also())
}

func fragmentValue(p piece) uint32 {
	switch {
	case p.from > 0:
		return packet.FragmentLater
	case p.more:
		return packet.FragmentFirst
	}
	return packet.FragmentNone
}

// four makes the frames of an attempt over IPv4.
func (a *attempt) four(g *generator, h header, body []byte) {
	if a.kind == options || g.also() {
		a.formed = false
		h.options = pick(g, []byte{1, 1, 1, 0}, []byte{148, 4, 0, 0}, []byte{131, 7, 4, 192, 0, 2, 1, 0}, []byte{7, 7, 4, 0, 0, 0, 0, 0},
			[]byte{68, 8, 5, 0, 0, 0, 0, 0}, []byte{255, 0, 0, 0}, slices.Repeat([]byte{1}, 40), slices.Repeat([]byte{1}, 36))
		if g.oneIn(5) {
			h.ihl = g.IntN(16)
		}
	}
	if a.kind == lengths || g.seldom() {
		a.formed = false
		h.lie = pick(g, -len(body), -8, -1, 1, 8, 20, 1000, -len(body)-1, -20)
	}
	list := []piece{{0, len(body), false}}
	if g.fragmented(a, len(body)) {
		list = g.cut(a, len(body))
	}
	a.total = len(body)
	for _, p := range list {
		ip := a.ipv4(h, body[p.from:p.to], p.from, p.more)
		a.add(g, frame{offset: p.from, size: p.to - p.from, fragment: fragmentValue(p), ttl: uint32(h.ttl), dscp: uint32(h.dscp),
			length: uint32(binary.BigEndian.Uint16(ip[2:]))}, etherIPv4, ip)
	}
}

// chain draws extension headers. The result units has their lengths in units of 8 bytes, without the first unit.
func (g *generator) chain(a *attempt) (kinds []uint8, units []int) {
	if a.kind != extensions && !g.also() {
		return nil, nil
	}
	a.formed = false
	n, bytes := pick(g, 1, 2, 6, 7, 8, 12, 1+g.IntN(30)), 0
	for i := range n {
		k, u := pick[uint8](g, extDst, extDst, extDst, extRouting), pick(g, 0, 0, 0, 1, 4, g.IntN(30))
		if i == 0 && g.oneIn(4) || g.oneIn(40) {
			k = extHop
		}
		if bytes += 8 * (u + 1); bytes > 1000 {
			break
		}
		kinds, units = append(kinds, k), append(units, u)
	}
	return kinds, units
}

// six makes the frames of an attempt over IPv6. Some extension headers may be in the part that is fragmented, and others before it.
func (a *attempt) six(g *generator, h header, body []byte) {
	kinds, units := g.chain(a)
	inside := len(kinds)
	cut := g.fragmented(a, len(body))
	if cut {
		inside = g.IntN(len(kinds) + 1)
	}
	atomic := 0
	if (a.kind == extensions || a.kind == fragments) && g.oneIn(5) {
		atomic, a.formed = pick(g, 1, 1, 2), false
	}
	first := func(kinds []uint8, last uint8) uint8 {
		if len(kinds) > 0 {
			return kinds[0]
		}
		return last
	}
	build := func(kinds []uint8, units []int, last uint8) (b []byte) {
		for i, k := range kinds {
			b = append(b, extension(first(kinds[i+1:], last), k, units[i])...)
		}
		return b
	}
	next := a.proto
	for range atomic {
		body = append(fragmentHeader(next, 0, false, h.id), body...)
		next = extFragment
	}
	if cut {
		body = append(build(kinds[inside:], units[inside:], next), body...)
		next = first(kinds[inside:], next)
		kinds, units = kinds[:inside], units[:inside]
	}
	list := []piece{{0, len(body), false}}
	if cut {
		list = g.cut(a, len(body))
		if slices.ContainsFunc(list, func(p piece) bool { return p.from == 0 && p.to < 24 }) {
			a.formed = false // Linux requires all headers in the first fragment (RFC 8200, 4.5)
		}
	}
	if a.kind == lengths || g.seldom() {
		a.formed = false
		h.lie = pick(g, 1000, 1, 8, -1, -8, -20)
	}
	empty := a.kind == lengths && g.oneIn(2) // a payload length of 0 before hop-by-hop options: the kernel reads the rest of the packet
	if empty {
		kinds, units = append([]uint8{extHop}, kinds...), append([]int{g.IntN(2)}, units...)
	}
	a.total = len(body)
	for _, p := range list {
		last, part := next, body[p.from:p.to]
		if cut {
			part = append(fragmentHeader(next, p.from, p.more, h.id), part...)
			last = extFragment
		}
		part = append(build(kinds, units, last), part...)
		ip := a.ipv6(h, first(kinds, last), part)
		if empty {
			binary.BigEndian.PutUint16(ip[4:], 0)
			if g.oneIn(2) && len(ip) > 47 { // with a jumbo payload option (RFC 2675)
				copy(ip[42:], []byte{0xc2, 4, 0, 0, 0, 0})
				binary.BigEndian.PutUint32(ip[44:], pick(g, uint32(len(part)), 70000))
			}
		}
		a.add(g, frame{offset: p.from, size: p.to - p.from, fragment: fragmentValue(p), ttl: uint32(h.ttl), dscp: uint32(h.dscp),
			length: uint32(binary.BigEndian.Uint16(ip[4:])) + 40}, etherIPv6, ip)
	}
}

// add adds the link layer to an IP packet, and adds the frame to the attempt.
func (a *attempt) add(g *generator, f frame, ether uint16, ip []byte) {
	if a.kind == tunnels {
		a.formed = false
		ether, ip = a.tunnel(g, ether, ip)
	}
	list := a.tags(g)
	f.vlan = packet.VLANNone
	if len(list) > 0 {
		f.vlan = uint32(list[0].vid & 0xfff)
	}
	f.metadata = g.metadata && (a.kind == tags && g.oneIn(3) || a.kind != plain && g.oneIn(40))
	if f.metadata {
		a.formed = false
	}
	f.bytes = a.strange(g, ether, ip, list)
	if a.kind == padding {
		if g.oneIn(3) && len(f.bytes) > 14 {
			a.formed = false
			f.bytes = f.bytes[:14+g.IntN(len(f.bytes)-14)]
		} else {
			pad := make([]byte, g.IntN(60))
			for i := range pad {
				pad[i] = byte(g.Uint32())
			}
			f.bytes = append(f.bytes, pad...)
		}
	}
	if len(f.bytes) > 1514 {
		a.formed = false
		f.bytes = f.bytes[:1514]
	}
	a.frames = append(a.frames, f)
}

// tags draws the VLAN tags of an attempt.
func (a *attempt) tags(g *generator) (list []tag) {
	if a.kind != tags && !g.also() {
		return nil
	}
	for range pick(g, 0, 1, 2, 3, 4) {
		list = append(list, tag{pick[uint16](g, etherVLAN, etherVLAN, etherQinQ), pick(g, 0, 0, 0, 0, 0x2000, 5, uint16(g.Uint32()))})
	}
	if len(list) > 0 && (len(list) > 1 || list[0].vid&0xfff != 0) {
		a.formed = false
	}
	return list
}

// strange adds the Ethernet header. For the kind ethertypes it adds a link layer that does not carry plain IP.
func (a *attempt) strange(g *generator, ether uint16, ip []byte, list []tag) []byte {
	if a.kind != ethertypes {
		return ethernet(ether, ip, list...)
	}
	a.formed = false
	switch g.IntN(5) {
	case 0: // IEEE 802.2 with SNAP (RFC 1042)
		snap := append([]byte{0xaa, 0xaa, 3, 0, 0, 0, byte(ether >> 8), byte(ether)}, ip...)
		return ethernet(uint16(len(snap)), snap, list...)
	case 1: // PPPoE (RFC 2516)
		ppp := map[uint16]byte{etherIPv4: 0x21, etherIPv6: 0x57}[ether]
		return ethernet(0x8864, append([]byte{0x11, 0, 0, 1, byte((len(ip) + 2) >> 8), byte(len(ip) + 2), 0, ppp}, ip...), list...)
	case 2: // tags that the kernel does not know
		return ethernet(ether, ip, append([]tag{{0x9100, 0}}, list...)...)
	case 3: // the type of the other family
		return ethernet(etherIPv4+etherIPv6-ether, ip, list...)
	}
	return ethernet(pick[uint16](g, 0x0806, 0x8847, 0x6558, 0x0600, 0, uint16(g.Uint32())), ip, list...)
}

// tunnel puts a packet into another packet, or changes its addresses to IPv4-mapped ones.
func (a *attempt) tunnel(g *generator, ether uint16, ip []byte) (uint16, []byte) {
	inner := map[uint16]uint8{etherIPv4: 4, etherIPv6: 41}[ether]
	outer := &attempt{proto: inner}
	number := a.src.As16()
	switch g.IntN(3) {
	case 0:
		outer.src = netip.AddrFrom4([4]byte{10, 0, number[14], number[15]})
		outer.dst = targets[0][0]
		return etherIPv4, outer.ipv4(header{ttl: 64}, ip, 0, false)
	case 1:
		if !a.src.Is4() {
			break
		}
		mapped := &attempt{proto: a.proto, src: netip.AddrFrom16(a.src.As16()), dst: netip.AddrFrom16(a.dst.As16())}
		return etherIPv6, mapped.ipv6(header{ttl: 64}, a.proto, ip[20:])
	}
	b := netip.MustParseAddr("2001:db8::").As16()
	b[14], b[15] = number[14], number[15]
	outer.src, outer.dst = netip.AddrFrom16(b), targets[1][0]
	return etherIPv6, outer.ipv6(header{ttl: 64}, inner, ip)
}
