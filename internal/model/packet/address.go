// SPDX-License-Identifier: Apache-2.0

package packet

import "net/netip"

// InvalidSources are the sources that no packet from outside may have (RFC 1122, 3.2.1.3; RFC 4291, 2.5.3 and 2.7). The check source-address uses
// them.
var InvalidSources = prefixes("224.0.0.0/4", "255.255.255.255/32", "127.0.0.0/8", "ff00::/8", "::1/128")

// Bogons are the prefixes of the registry of RFC 6890 that are not globally reachable, and the multicast ranges. The check bogon-source uses them,
// with exceptions for NAT64 and for hosts that are about to get an address.
var Bogons = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"::/8", "64:ff9b:1::/48", "100::/64", "2001:db8::/32", "3fff::/20", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8")

var (
	ipv6LinkLocal = netip.MustParsePrefix("fe80::/10")
	nat64         = netip.MustParsePrefix("64:ff9b::/96") // within ::/8, and globally reachable (RFC 6052)
)

// IsBogon reports whether an address is not globally routed, NAT64 aside.
func IsBogon(a netip.Addr) bool { return inAny(Bogons, a) && !nat64.Contains(a) }

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, t := range texts {
		list[i] = netip.MustParsePrefix(t)
	}
	return list
}

func inAny(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// addresses runs the checks of the addresses and of the protocol number.
func (p *Packet) addresses() {
	p.failIf(p.Src == p.Dst, Land)
	p.failIf(inAny(InvalidSources, p.Src), SourceAddress)
	p.failIf(IsBogon(p.Src) && !p.startsUp(), BogonSource)
	proto := p.Value[Proto]
	p.failIf(proto >= 148 && proto <= 252 || proto == 255, IPProtocol)
}

// startsUp reports whether the packet may have a source that is not globally routed: DHCP, DHCPv6 and ICMPv6 neighbor discovery. The sender of such a
// packet is about to get an address, or sends only to the link.
func (p *Packet) startsUp() bool {
	link := p.Src == netip.IPv6Unspecified() || ipv6LinkLocal.Contains(p.Src)
	switch p.Value[Proto] {
	case ProtoUDP:
		return link || p.Src == netip.IPv4Unspecified()
	case ProtoICMPv6:
		return link
	}
	return false
}
