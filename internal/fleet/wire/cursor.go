// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// errShort is the error for a message that ends too early.
var errShort = errors.New("the message ends too early")

// cursor reads a message from its start. After the first error, the error stays, and all further values are zero.
type cursor struct {
	rest []byte
	err  error
}

func (c *cursor) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.rest = nil
}

func (c *cursor) bytes(n int) []byte {
	if n > len(c.rest) {
		c.fail(errShort)
		return nil
	}
	b := c.rest[:n:n]
	c.rest = c.rest[n:]
	return b
}

func (c *cursor) byte() byte {
	if b := c.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) number() uint64 {
	n, size := binary.Uvarint(c.rest)
	if size <= 0 {
		c.fail(errShort)
		return 0
	}
	c.rest = c.rest[size:]
	return n
}

// count reads the number of the following items. Each item has at least one byte, so the count cannot exceed the rest of the message.
func (c *cursor) count(most int) int {
	n := c.number()
	if n > uint64(most) {
		c.fail(fmt.Errorf("%d things in a message, at most %d are taken", n, most))
		return 0
	}
	if n > uint64(len(c.rest)) {
		c.fail(errShort)
		return 0
	}
	return int(n)
}

func (c *cursor) text(most int) string { return string(c.bytes(c.count(most))) }

// version reads the version of the message format.
func (c *cursor) version() {
	if v := c.byte(); c.err == nil && v != version {
		c.fail(fmt.Errorf("form %d of messages, this program knows %d", v, version))
	}
}

func (c *cursor) prefix() netip.Prefix {
	var a netip.Addr
	family, bits := c.byte(), int(c.byte())
	most := map[byte]int{4: 32, 6: 128}[family]
	if c.err == nil && (most == 0 || bits > most) {
		c.fail(fmt.Errorf("no prefix: family %d, length %d", family, bits))
	}
	part := c.bytes((bits + 7) / 8)
	if c.err != nil {
		return netip.Prefix{}
	}
	var full [16]byte
	copy(full[:], part)
	if a = netip.AddrFrom16(full); family == 4 {
		a = netip.AddrFrom4([4]byte(full[:4]))
	}
	p := netip.PrefixFrom(a, bits)
	if p != p.Masked() || a.Is4In6() {
		c.fail(fmt.Errorf("%v is not a prefix", p))
	}
	return p
}

// end returns the error of a message. Remaining bytes are an error.
func (c *cursor) end() error {
	if c.err == nil && len(c.rest) > 0 {
		return fmt.Errorf("%d bytes after the message", len(c.rest))
	}
	return c.err
}

func appendText(to []byte, text string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}

func appendPrefix(to []byte, p netip.Prefix) []byte {
	family := byte(4)
	if p.Addr().Is6() {
		family = 6
	}
	to = append(to, family, byte(p.Bits()))
	return append(to, p.Addr().AsSlice()[:(p.Bits()+7)/8]...)
}
