// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// TestDecodeAgainstGopacket compares Decode, and the checksums that Frame makes, with an independent decoder on
// well-formed packets.
func TestDecodeAgainstGopacket(t *testing.T) {
	r := seeded(t)
	compared := map[string]int{}
	for range 20_000 {
		s := RandomSpec(r, testHints)
		frame := s.Frame()
		want := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
		got := Decode(frame)
		o := oracle{t: t, line: s.String(), got: got, compared: compared}
		o.network(want)
		if want.ErrorLayer() == nil {
			o.transport(want)
			if s.layer != layerRaw {
				o.checksums(want)
			}
		}
		if t.Failed() {
			t.Fatalf("%s\n%s", s, want)
		}
	}
	for _, part := range []string{"VLAN", "IPv4", "IPv6", "fragment", "TCP", "UDP", "ICMPv4", "ICMPv6", "checksums"} {
		if compared[part] < 100 {
			t.Errorf("%s compared %d times only", part, compared[part])
		}
	}
}

// oracle compares packets, and counts the comparisons that were possible.
type oracle struct {
	t        *testing.T
	line     string
	got      Packet
	compared map[string]int
}

func (o *oracle) equal(f Field, want int) {
	o.t.Helper()
	if got := o.got.Value[f]; got != uint32(want) {
		o.t.Errorf("%s: %s is %s, want %s", o.line, f, show(f, got), show(f, uint32(want)))
	}
}

func (o *oracle) addresses(src, dst []byte) {
	s, _ := netip.AddrFromSlice(src)
	d, _ := netip.AddrFromSlice(dst)
	if o.got.Src != s || o.got.Dst != d {
		o.t.Errorf("%s: addresses %s > %s, want %s > %s", o.line, o.got.Src, o.got.Dst, s, d)
	}
}

// outer returns the layers up to the L4 header. It omits further layers, because gopacket also decodes tunnels, and finds arbitrary layers in random
// bytes.
func outer(p gopacket.Packet) []gopacket.Layer {
	ips := 0
	for i, l := range p.Layers() {
		switch l.LayerType() {
		case layers.LayerTypeEthernet, layers.LayerTypeDot1Q, layers.LayerTypeIPv6HopByHop, layers.LayerTypeIPv6Routing,
			layers.LayerTypeIPv6Fragment, layers.LayerTypeIPv6Destination:
		case layers.LayerTypeIPv4, layers.LayerTypeIPv6:
			if ips++; ips > 1 {
				return p.Layers()[:i]
			}
		case layers.LayerTypeTCP, layers.LayerTypeUDP, layers.LayerTypeICMPv4, layers.LayerTypeICMPv6:
			return p.Layers()[:i+1]
		default:
			return p.Layers()[:i]
		}
	}
	return p.Layers()
}

func (o *oracle) network(p gopacket.Packet) {
	vlan := VLANNone
	if tag, ok := p.Layers()[1].(*layers.Dot1Q); ok {
		vlan = int(tag.VLANIdentifier)
		o.compared["VLAN"]++
	}
	o.equal(VLAN, vlan)
	switch ip := p.NetworkLayer().(type) {
	case *layers.IPv4:
		o.ipv4(ip)
	case *layers.IPv6:
		o.ipv6(ip, p)
	default:
		o.t.Errorf("%s: gopacket sees no IP", o.line)
	}
}

func (o *oracle) ipv4(ip *layers.IPv4) {
	o.compared["IPv4"]++
	o.addresses(ip.SrcIP.To4(), ip.DstIP.To4())
	o.equal(Family, FamilyIPv4)
	o.equal(Length, int(ip.Length))
	o.equal(TTL, int(ip.TTL))
	o.equal(DSCP, int(ip.TOS>>2))
	o.equal(Proto, int(ip.Protocol))
	o.fragment(ip.FragOffset, ip.Flags&layers.IPv4MoreFragments != 0)
}

func (o *oracle) ipv6(ip *layers.IPv6, p gopacket.Packet) {
	o.compared["IPv6"]++
	o.addresses(ip.SrcIP.To16(), ip.DstIP.To16())
	o.equal(Family, FamilyIPv6)
	o.equal(Length, int(ip.Length)+40)
	o.equal(TTL, int(ip.HopLimit))
	o.equal(DSCP, int(ip.TrafficClass>>2))
	if p.ErrorLayer() != nil || o.got.Failed.Has(ExtHeaders) {
		return // gopacket does not know all routing headers, and Decode does not follow all chains to their end
	}
	fragments := 0
	var last *layers.IPv6Fragment
	for _, l := range outer(p) {
		if f, ok := l.(*layers.IPv6Fragment); ok {
			fragments++
			last = f
		}
	}
	if fragments > 0 {
		o.fragment(last.FragmentOffset, last.MoreFragments)
	} else {
		o.fragment(0, false)
	}
}

func (o *oracle) fragment(offset uint16, more bool) {
	switch {
	case offset > 0:
		o.compared["fragment"]++
		o.equal(Fragment, FragmentLater)
	case more:
		o.equal(Fragment, FragmentFirst)
	default:
		o.equal(Fragment, FragmentNone)
	}
}

// transport compares the L4 header if gopacket decodes one. It does not do so in fragments, nor after AH.
func (o *oracle) transport(p gopacket.Packet) {
	if o.got.Failed.Has(ExtHeaders) || o.got.Value[Fragment] == FragmentLater {
		o.equal(DPort, PortNone)
		o.equal(SPort, PortNone)
		o.equal(Flags, FlagsNone)
		o.equal(ICMP, ICMPNone)
		return
	}
	for _, l := range outer(p) {
		switch l := l.(type) {
		case *layers.TCP:
			o.compared["TCP"]++
			o.equal(Proto, ProtoTCP)
			o.equal(SPort, int(l.SrcPort))
			o.equal(DPort, int(l.DstPort))
			o.equal(Flags, int(l.Contents[13]))
		case *layers.UDP:
			o.compared["UDP"]++
			o.equal(Proto, ProtoUDP)
			o.equal(SPort, PortUDP+int(l.SrcPort))
			o.equal(DPort, PortUDP+int(l.DstPort))
		case *layers.ICMPv4:
			o.compared["ICMPv4"]++
			o.equal(Proto, ProtoICMP)
			o.icmp(int(l.TypeCode), FamilyIPv4)
		case *layers.ICMPv6:
			o.compared["ICMPv6"]++
			o.equal(Proto, ProtoICMPv6)
			o.icmp(ICMPv6+int(l.TypeCode), FamilyIPv6)
		}
	}
}

// icmp compares an ICMP type and code. In packets of the other family these have no meaning.
func (o *oracle) icmp(want int, family uint32) {
	o.t.Helper()
	if o.got.Value[Family] != family {
		want = ICMPNone
	}
	o.equal(ICMP, want)
}

// checksums verifies the checksums of the headers that Frame knows with gopacket.
func (o *oracle) checksums(p gopacket.Packet) {
	err, wrong := p.VerifyChecksums()
	if err != nil {
		return
	}
	o.compared["checksums"]++
	for _, w := range wrong {
		if w.LayerIndex >= len(outer(p)) {
			continue
		}
		o.t.Errorf("%s: checksum of layer %d: %+v", o.line, w.LayerIndex, w)
	}
}
