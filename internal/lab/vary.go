package lab

import (
	"encoding/binary"
	"slices"
)

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
