// SPDX-License-Identifier: Apache-2.0

package flowspec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// longLength is the smallest length of an NLRI whose length field has two bytes. maxLength is the largest length of such an NLRI (RFC 8955, 4.1).
const (
	longLength = 240
	maxLength  = 4095
)

// Decode decodes the first flow specification of an NLRI field, including its length. It returns the flow specification and the bytes after it. The
// error describes which part is malformed, or that Floodwall cannot test it. After an error, rest is valid unless it is nil.
func Decode(nlri []byte, ipv6 bool) (f Flow, rest []byte, err error) {
	body, rest, err := cut(nlri)
	if err != nil {
		return Flow{}, nil, err
	}
	f = Flow{IPv6: ipv6}
	for len(body) > 0 {
		var c Component
		if c, body, err = component(body, ipv6); err != nil {
			return Flow{}, rest, err
		}
		if n := len(f.Components); n > 0 && f.Components[n-1].Type >= c.Type {
			return Flow{}, rest, fmt.Errorf("%s stands after %s: components must be in order, each once", c.Type, f.Components[n-1].Type)
		}
		f.Components = append(f.Components, c)
	}
	if f.Components == nil {
		return Flow{}, rest, errors.New("has no component")
	}
	return f, rest, nil
}

// cut splits an NLRI field after the first flow specification.
func cut(b []byte) (body, rest []byte, err error) {
	if len(b) == 0 {
		return nil, nil, errors.New("has no length")
	}
	length, header := int(b[0]), 1
	if length >= longLength {
		if len(b) < 2 {
			return nil, nil, errors.New("ends within its length")
		}
		length, header = int(binary.BigEndian.Uint16(b)&maxLength), 2
	}
	if len(b) < header+length {
		return nil, nil, fmt.Errorf("says it has %d bytes, and %d are there", length, len(b)-header)
	}
	return b[header : header+length], b[header+length:], nil
}

// component decodes the component at the start of b.
func component(b []byte, ipv6 bool) (c Component, rest []byte, err error) {
	c.Type, rest = Type(b[0]), b[1:]
	switch {
	case c.Type.prefixed():
		c.Prefix, rest, err = readPrefix(rest, ipv6)
	case c.Type == FlowLabel:
		err = ErrUntestable
	case c.Type == 0 || c.Type > FlowLabel:
		err = untestable("is not known")
	default:
		start := rest
		if _, rest, err = readTerms(rest); err == nil {
			c.Terms = start[:len(start)-len(rest)]
		}
	}
	if err == nil {
		_, err = c.values(ipv6)
		return c, rest, err
	}
	return Component{}, nil, fmt.Errorf("%s: %w", c.Type, err)
}

// readPrefix decodes a prefix: its length in bits, an offset for IPv6, and as many bytes as the bits need.
func readPrefix(b []byte, ipv6 bool) (netip.Prefix, []byte, error) {
	header, most := 1, 32
	if ipv6 {
		header, most = 2, 128
	}
	if len(b) < header {
		return netip.Prefix{}, nil, errors.New("ends before its prefix")
	}
	bits := int(b[0])
	switch {
	case bits > most:
		return netip.Prefix{}, nil, fmt.Errorf("has a prefix of %d bits, more than %d", bits, most)
	case ipv6 && b[1] != 0:
		return netip.Prefix{}, nil, untestable(fmt.Sprintf("begins at bit %d of the address: only prefixes that begin at its first bit can be tested", b[1]))
	}
	size := (bits + 7) / 8
	if len(b) < header+size {
		return netip.Prefix{}, nil, errors.New("ends within its prefix")
	}
	var bytes [16]byte
	copy(bytes[:], b[header:header+size])
	address := netip.AddrFrom16(bytes)
	if !ipv6 {
		address = netip.AddrFrom4([4]byte(bytes[:4]))
	}
	prefix, err := address.Prefix(bits)
	return prefix, b[header+size:], err
}

// body returns the NLRI without its length field.
func (f Flow) body() []byte {
	var b []byte
	for _, c := range f.Components {
		b = append(b, byte(c.Type))
		if !c.Type.prefixed() {
			b = append(b, c.Terms...)
			continue
		}
		b = append(b, byte(c.Prefix.Bits()))
		if f.IPv6 {
			b = append(b, 0)
		}
		b = append(b, c.Prefix.Addr().AsSlice()[:(c.Prefix.Bits()+7)/8]...)
	}
	return b
}
