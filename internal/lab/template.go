// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"
)

// minFrame is the shortest Ethernet frame (IEEE 802.3, 64 bytes) without its check sequence.
const minFrame = 60

// headerMax is HEADER_MAX of bpf/lab.c: the part of each frame that is written again for each packet.
const headerMax = 256

// MostMixed is the longest payload, in bytes, that a flow of any family can have in a mix.
const MostMixed = headerMax - 100

// The values in the IANA registries of EtherTypes and protocol numbers.
const (
	etherIPv4 = unix.ETH_P_IP
	etherIPv6 = unix.ETH_P_IPV6
	etherVLAN = unix.ETH_P_8021Q
	etherQinQ = unix.ETH_P_8021AD
	icmpv6    = unix.IPPROTO_ICMPV6
)

// template is a frame of a flow. All varying fields are zero. The template has the rules by which the generator sets them.
type template struct {
	frame []byte
	flow  labRecipe
}

// newTemplate builds the frame that flow f sends from device d. The flow must have been checked.
func newTemplate(f *Flow, d *Device) (*template, error) {
	t := &template{}
	t.ethernet(f, d)
	l3 := len(t.frame)
	body := t.body(f, l3)
	t.ip(f, l3, len(body))
	l4 := len(t.frame)
	t.frame = append(t.frame, body...)
	t.l4(f, l4)
	t.addresses(f, l3)
	t.sums(f, l3, l4)

	headers := l4 + l4Length(f)
	t.flow.Length = uint32(min(headers+len(f.Payload), headerMax))
	t.flow.Ifindex = uint32(d.Index)
	for len(t.frame) < minFrame {
		t.frame = append(t.frame, 0)
	}
	// A veth drops frames longer than MTU, Ethernet header and one tag (kernel include/linux/netdevice.h, __is_skb_forwardable, and
	// drivers/net/veth.c, veth_xdp_xmit).
	if most := d.MTU + 14 + 4; len(t.frame) > most {
		return nil, fmt.Errorf("frame of %d bytes: device %s with MTU %d takes %d", len(t.frame), d.Name, d.MTU, most)
	}
	return t, nil
}

func (t *template) ethernet(f *Flow, d *Device) {
	pick := func(mac, fallback net.HardwareAddr) net.HardwareAddr {
		if len(mac) == 6 {
			return mac
		}
		return fallback
	}
	t.frame = append(t.frame, pick(f.DstMAC, d.Peer.MAC)...)
	t.frame = append(t.frame, pick(f.SrcMAC, d.MAC)...)
	for i, tag := range f.VLAN {
		kind := uint16(etherVLAN)
		if i+1 < len(f.VLAN) {
			kind = etherQinQ
		}
		t.frame = be16(t.frame, kind, tag)
	}
	t.frame = be16(t.frame, etherType(f))
}

func etherType(f *Flow) uint16 {
	if f.V6() {
		return etherIPv6
	}
	return etherIPv4
}

// V6 reports whether the flow has IPv6 packets.
func (f *Flow) V6() bool { return f.From.first().Is6() }

// proto returns the protocol number in the IP header.
func (f *Flow) proto() byte {
	switch {
	case f.Proto == 0:
		return byte(UDP)
	case f.Proto == ICMP && f.V6():
		return icmpv6
	}
	return byte(f.Proto)
}

// l3Length and l4Length are the lengths of the flow's headers.
func l3Length(f *Flow) int {
	if f.V6() {
		return 40
	}
	return 20
}

func l4Length(f *Flow) int {
	if f.Proto == TCP {
		return 20 + len(f.Options)
	}
	return 8
}

// headersBefore returns the offset of the flow's L4 header.
func headersBefore(f *Flow) int { return 14 + 4*len(f.VLAN) + l3Length(f) }

// body returns space for the L4 header and the payload, padded to the requested size.
func (t *template) body(f *Flow, l3 int) []byte {
	body := append(make([]byte, l4Length(f)), f.Payload...)
	if missing := f.Size - l3 - l3Length(f) - len(body); missing > 0 {
		body = append(body, make([]byte, missing)...)
	}
	return body
}

func (t *template) ip(f *Flow, l3, body int) {
	ttl := f.TTL
	if ttl == 0 {
		ttl = 64
	}
	if f.V6() {
		t.frame = be16(t.frame, 6<<12, 0, uint16(body))
		t.frame = append(t.frame, f.proto(), ttl)
	} else {
		fragment := uint16(1 << 14) // don't fragment
		if f.Fragments {
			fragment, t.flow.IdAt = 0, uint32(l3+4)
		}
		t.frame = be16(t.frame, 0x4500, uint16(20+body), 0, fragment)
		t.frame = append(t.frame, ttl, f.proto(), 0, 0)
	}
	t.frame = append(t.frame, make([]byte, l3Length(f)-len(t.frame)+l3)...)
}

func (t *template) l4(f *Flow, l4 int) {
	h := t.frame[l4:]
	ports, check := 0, 6
	switch f.proto() {
	case byte(UDP):
		binary.BigEndian.PutUint16(h[4:], uint16(len(h)))
		t.flow.L4Zero = 0xffff
	case byte(TCP):
		check = 16
		h[12], h[13] = byte(l4Length(f)/4<<4), byte(f.Flags)
		binary.BigEndian.PutUint16(h[14:], 65535) // window
		copy(h[20:], f.Options)
		t.tcpNumbers(f, l4)
	default:
		ports, check = 4, 2
		h[0], h[1] = f.ICMPType, f.Code
	}
	if !f.NoSum {
		t.flow.L4CheckAt = uint32(l4 + check)
	}
	t.flow.Sport = t.field(f.SPort, l4+ports)
	t.flow.Dport = t.field(f.DPort, l4+ports+2)
	if f.RandomID {
		h[8], h[9] = 0, 0
		t.flow.Id = labField16{At: uint16(l4 + 8), Count: 1 << 16}
	}
	if f.Random != 0 {
		clear(h[8+f.Random:][:8])
		t.flow.TcpAt, t.flow.TcpRandom = uint32(l4+8+f.Random), 0x1f1f1f1f1f1f1f1f
	}
}

// tcpNumbers makes sequence numbers random, and also acknowledgment numbers if the flow has them.
func (t *template) tcpNumbers(f *Flow, l4 int) {
	var mask [8]byte
	fill := mask[:4]
	if f.Flags&ACK != 0 {
		fill = mask[:]
	}
	for i := range fill {
		fill[i] = 0xff
	}
	t.flow.TcpAt, t.flow.TcpRandom = uint32(l4+4), binary.NativeEndian.Uint64(mask[:])
}

// be16 appends numbers in network byte order.
func be16(b []byte, numbers ...uint16) []byte {
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint16(b, n)
	}
	return b
}

// field writes a constant port, and returns the rule for a varying one.
func (t *template) field(p Ports, at int) labField16 {
	field := labField16{At: uint16(at), First: p.First, Count: 1}
	if p.Last > p.First {
		field.Count = uint32(p.Last-p.First) + 1
		return field
	}
	binary.BigEndian.PutUint16(t.frame[at:], p.First)
	return field
}

// The values of enum choice in bpf/lab.c.
const (
	choiceFixed = iota
	choiceRandom
	choiceCycle
	choiceList
)

func (t *template) addresses(f *Flow, l3 int) {
	t.flow.Words = 1
	from, to := l3+12, l3+16
	if f.V6() {
		t.flow.Words, from, to = 4, l3+8, l3+24
	}
	t.flow.Source = t.address(f.From, from)
	t.flow.Destination = t.address(f.To, to)
}

// address writes a constant address, and returns the rule for a varying one.
func (t *template) address(a Addresses, at int) labAddress {
	c := labAddress{At: uint32(at), Choice: choiceRandom, Entries: uint32(len(a.list))}
	base := a.first().AsSlice()
	switch {
	case len(a.list) > 1:
		c.Choice = choiceList
		return c
	case len(a.list) == 1 || a.prefix.IsSingleIP():
		c.Choice = choiceFixed
		copy(t.frame[at:], base)
		return c
	case a.cycle:
		c.Choice = choiceCycle
	}
	mask := slices.Repeat([]byte{0xff}, len(base))
	for i := range a.prefix.Bits() {
		mask[i/8] &^= 0x80 >> (i % 8)
	}
	for i := 0; i < len(base); i += 4 {
		c.Base[i/4], c.Mask[i/4] = binary.NativeEndian.Uint32(base[i:]), binary.NativeEndian.Uint32(mask[i:])
	}
	return c
}

// sums adds up the constant parts for the checksums of IPv4 (RFC 791) and L4 (RFC 768, 9293, 4443; ICMP for IPv4 has no pseudo header, RFC 792).
func (t *template) sums(f *Flow, l3, l4 int) {
	if !f.V6() {
		t.flow.IpCheckAt, t.flow.IpSum = uint32(l3+10), sum16(t.frame[l3:l4])
	}
	if f.NoSum {
		return
	}
	t.flow.L4Sum = sum16(t.frame[l4:])
	if f.proto() == byte(ICMP) {
		return
	}
	pseudo := be16(nil, uint16(len(t.frame)-l4), uint16(f.proto()))
	t.flow.L4Pseudo = 1
	t.flow.L4Sum += sum16(pseudo) + sum16(t.frame[t.flow.Source.At:l4])
}

// sum16 adds up 16-bit words in the byte order of this machine; an odd last byte is followed by a zero (RFC 1071).
func sum16(b []byte) (sum uint32) {
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.NativeEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(binary.NativeEndian.Uint16([]byte{b[0], 0}))
	}
	return sum
}
