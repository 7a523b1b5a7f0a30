// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Notation returns a description of a frame in the notation of `floodwall explain`. ok is true if a packet with this description is decoded like the
// frame. If ok is false, the frame must be given as bytes.
func Notation(frame []byte) (text string, ok bool) {
	pkt := packet.Decode(frame)
	if pkt.Kind != packet.IP {
		return "", false
	}
	text = strings.Join(notationWords(frame, &pkt), " ")
	for _, sum := range []string{"", " csum=bad", " csum=0"} {
		spec, err := packet.Parse(text + sum)
		if err != nil {
			continue
		}
		again := packet.Decode(spec.Frame())
		if again.Value == pkt.Value && again.Failed == pkt.Failed && again.Src == pkt.Src && again.Dst == pkt.Dst {
			return text + sum, true
		}
	}
	return text, false
}

func notationWords(frame []byte, pkt *packet.Packet) []string {
	v := &pkt.Value
	name, ports := "", v[packet.DPort] != packet.PortNone
	switch v[packet.Proto] {
	case packet.ProtoTCP:
		name = "tcp"
	case packet.ProtoUDP:
		name = "udp"
	case packet.ProtoICMP:
		name = "icmp"
	case packet.ProtoICMPv6:
		name = "icmpv6"
	default:
		name = fmt.Sprintf("proto=%d", v[packet.Proto])
	}
	end := func(a netip.Addr, f packet.Field) string {
		if !ports {
			return a.String()
		}
		return netip.AddrPortFrom(a, uint16(v[f])).String()
	}
	words := []string{name, end(pkt.Src, packet.SPort), ">", end(pkt.Dst, packet.DPort)}
	if ports && name == "tcp" {
		words = append(words, tcpWords(pkt)...)
	}
	if v[packet.ICMP] != packet.ICMPNone {
		words = append(words, fmt.Sprintf("type=%d", v[packet.ICMP]>>8&0xff), fmt.Sprintf("code=%d", v[packet.ICMP]&0xff))
	}
	words = append(words, fmt.Sprintf("len=%d", v[packet.Length]), fmt.Sprintf("ttl=%d", v[packet.TTL]), fmt.Sprintf("dscp=%d", v[packet.DSCP]))
	if v[packet.VLAN] != packet.VLANNone {
		words = append(words, fmt.Sprintf("vlan=%d", v[packet.VLAN]))
	}
	if name == "udp" && ports && len(pkt.L4) >= 8 {
		words = append(words, fmt.Sprintf("udplen=%d", int(pkt.L4[4])<<8|int(pkt.L4[5])))
	}
	if len(frame) < linkBytes(v)+int(v[packet.Length]) {
		words = append(words, fmt.Sprintf("cut=%d", len(frame)))
	}
	return words
}

func linkBytes(v *[packet.NumKeys]uint32) int {
	if v[packet.VLAN] != packet.VLANNone {
		return 18
	}
	return 14
}

// tcpWords returns the flags and the numbers of a TCP header, and its options in hex digits.
func tcpWords(pkt *packet.Packet) []string {
	h := pkt.L4
	flags := ""
	for i, letter := range "FSRP.UEW" {
		if h[13]>>i&1 == 1 {
			flags += string(letter)
		}
	}
	if flags == "" {
		flags = "none"
	}
	number := func(at int) uint32 {
		return uint32(h[at])<<24 | uint32(h[at+1])<<16 | uint32(h[at+2])<<8 | uint32(h[at+3])
	}
	words := []string{
		flags, fmt.Sprintf("seq=%d", number(4)), fmt.Sprintf("ack=%d", number(8)), fmt.Sprintf("win=%d", int(h[14])<<8|int(h[15])),
		fmt.Sprintf("doff=%d", h[12]>>4),
	}
	if size := int(h[12]>>4) * 4; size > 20 && size <= len(h) {
		return append(words, fmt.Sprintf("tcpopts=%x", h[20:size]))
	}
	return append(words, "tcpopts=none")
}
