// SPDX-License-Identifier: Apache-2.0

package packet

import "net/netip"

// protocol chooses a random protocol and L4 header.
func (g *generator) protocol(v4 bool) {
	s := &g.spec
	icmp := uint32(ProtoICMPv6)
	if v4 {
		icmp = ProtoICMP
	}
	choices := []uint32{ProtoTCP, ProtoTCP, ProtoTCP, ProtoUDP, ProtoUDP, ProtoUDP, icmp}
	for range min(4, len(g.hints.Values[Proto])) {
		choices = append(choices, g.value(Proto))
	}
	s.proto = byte(pick(g, choices))
	if g.oneIn(16) {
		s.proto = byte(g.r.Uint32())
	}
	switch {
	case s.proto == ProtoTCP:
		s.layer = layerTCP
		g.ports(0)
		g.tcp()
	case s.proto == ProtoUDP:
		s.layer = layerUDP
		g.ports(PortUDP)
		if g.wrong(10) {
			s.put(numUDPLen, g.r.Uint32N(64))
		}
	case uint32(s.proto) == icmp:
		s.layer = layerICMP
		g.icmp(v4)
	case isExtension(s.proto) && g.wellFormed:
		s.proto = 47
	}
}

// ports chooses both ports. base is 0 for TCP and PortUDP for UDP.
func (g *generator) ports(base uint32) {
	g.spec.ports = true
	g.spec.sport = g.port(SPort, base, 1024, 40000, 53, 123, 1900, 11211)
	g.spec.dport = g.port(DPort, base, 80, 443, 53, 22)
}

// port returns a random port of the protocol with this base. The policy's values of the field contain ports of both protocols, so values of the other
// protocol are skipped.
func (g *generator) port(f Field, base uint32, usual ...uint32) uint16 {
	for range 4 {
		if v := g.value(f, base+pick(g, usual)); v >= base && v < base+PortUDP {
			return uint16(v - base)
		}
	}
	if g.oneIn(8) {
		return 0
	}
	return uint16(g.r.Uint32())
}

// tcp chooses random flags and options, and sometimes a wrong data offset.
func (g *generator) tcp() {
	s := &g.spec
	s.flags = uint8(g.value(Flags, tcpSYN, tcpSYN, tcpSYN|tcpACK, tcpACK, tcpPSH|tcpACK, tcpFIN|tcpACK, tcpRST))
	s.tcpText = g.tcpOptionText()
	if g.oneIn(10) {
		s.put(numWin, g.r.Uint32N(2)*uint32(defaultWindow))
	}
	if g.oneIn(10) {
		s.put(numAck, g.r.Uint32N(2))
	}
	if g.wrong(10) {
		s.put(numDoff, g.r.Uint32N(16))
	}
}

// icmp chooses a random type and code.
func (g *generator) icmp(v4 bool) {
	base, usual := uint32(0), []uint32{8 << 8, 0, 3<<8 | 4, 5 << 8, 13 << 8}
	if !v4 {
		base, usual = ICMPv6, []uint32{128 << 8, 129 << 8, 2 << 8, 133 << 8, 135 << 8, 136 << 8}
	}
	v := g.value(ICMP, base+pick(g, usual))
	g.spec.put(numType, v>>8&0xff)
	g.spec.put(numCode, v&0xff)
}

// specialAddrs are addresses that the checks test for, and ordinary addresses of the same family.
var specialAddrs = map[bool][]netip.Addr{
	true: addrs("0.0.0.0", "10.0.0.1", "127.0.0.1", "192.0.2.1", "224.0.0.1", "255.255.255.255", "8.8.8.8", "198.51.100.7"),
	false: addrs("::", "::1", "::ffff:192.0.2.1", "64:ff9b:1::1", "2001:db8::1", "2606:4700::1", "3fff::1", "fe80::1",
		"fd00::1", "ff02::1"),
}

func addrs(texts ...string) []netip.Addr {
	list := make([]netip.Addr, len(texts))
	for i, t := range texts {
		list[i] = netip.MustParseAddr(t)
	}
	return list
}

// addr returns a random address. If the policy mentions addresses of the family, the result is mostly near one of them.
func (g *generator) addr(v4 bool) netip.Addr {
	for range 4 {
		if len(g.hints.Addrs) == 0 || g.oneIn(6) {
			break
		}
		if p := pick(g, g.hints.Addrs); p.Addr().Is4() == v4 {
			return g.near(p)
		}
	}
	if g.oneIn(3) {
		return pick(g, specialAddrs[v4])
	}
	if v4 {
		return netip.AddrFrom4([4]byte(g.bytes(4)))
	}
	return netip.AddrFrom16([16]byte(g.bytes(16)))
}

// near returns a random address in p, one of the ends of p, or an address directly outside p.
func (g *generator) near(p netip.Prefix) netip.Addr {
	edge := g.r.IntN(6)
	bytes := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		if edge == 0 || edge > 1 && g.oneIn(2) {
			bytes[bit/8] |= 0x80 >> (bit % 8)
		}
	}
	a, _ := netip.AddrFromSlice(bytes)
	outside := a
	switch edge {
	case 0:
		outside = a.Next()
	case 1:
		outside = a.Prev()
	}
	if outside.IsValid() && g.oneIn(2) {
		return outside
	}
	return a
}
