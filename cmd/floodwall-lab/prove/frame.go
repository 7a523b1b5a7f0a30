// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"fmt"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
)

// frame is an arbitrary frame. Each byte that is read is a variable, and the length is a variable.
type frame struct {
	*smt.Context
	length *smt.Term         // 64 bits, at most 2^17-1
	known  map[int]*smt.Term // bytes with known bits
	read   map[int]bool
}

const lengthBits = 17 // width of a frame's length in bits: enough for the 65,535 bytes of IP and two headers

func newFrame(c *smt.Context, known map[int]*smt.Term) *frame {
	return &frame{c, c.ZExt(c.Var("length", lengthBits), 64), known, map[int]bool{}}
}

// byte returns the byte of the frame at an offset.
func (f *frame) byte(at int) *smt.Term {
	if t := f.known[at]; t != nil {
		return t
	}
	f.read[at] = true
	return f.Var(byteName(at), 8)
}

func byteName(at int) string { return fmt.Sprintf("byte%d", at) }

// load reads a number of size bytes in little-endian order.
func (f *frame) load(at, size int) *smt.Term {
	t := f.byte(at + size - 1)
	for i := size - 2; i >= 0; i-- {
		t = f.Concat(t, f.byte(at+i))
	}
	return t
}

// number reads a number in network byte order.
func (f *frame) number(at, size int) *smt.Term {
	t := f.byte(at)
	for i := 1; i < size; i++ {
		t = f.Concat(t, f.byte(at+i))
	}
	return t
}

// kind is a kind of usual frames. The entry has a section for each kind. Frames with and without a VLAN tag share a section.
type kind struct {
	tagged bool
	v6     bool
	proto  byte // 0: a protocol without a kind of its own, and no extension header
}

const (
	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
)

// kinds returns all kinds of usual frames.
func kinds() (list []kind) {
	for _, tagged := range []bool{false, true} {
		for _, proto := range []byte{protoUDP, protoTCP, protoICMP} {
			list = append(list, kind{tagged: tagged, proto: proto})
		}
		for _, proto := range []byte{protoUDP, protoTCP, protoICMPv6} {
			list = append(list, kind{tagged: tagged, v6: true, proto: proto})
		}
	}
	return list
}

func (k kind) String() string {
	name := map[byte]string{0: "other protocols", protoICMP: "icmp", protoTCP: "tcp", protoUDP: "udp", protoICMPv6: "icmpv6"}[k.proto]
	family := "IPv4"
	if k.v6 {
		family = "IPv6"
	}
	text := family + " " + name
	if k.tagged {
		text += " with a VLAN tag"
	}
	return text
}

// ip returns the offset of the IP header.
func (k kind) ip() int {
	if k.tagged {
		return 18
	}
	return 14
}

// ipHeader returns the length of the IP header.
func (k kind) ipHeader() int {
	if k.v6 {
		return 40
	}
	return 20
}

// known returns the bytes that make a frame one of the kind: EtherTypes, the IP version and the protocol. In IPv4, the header length is that of a
// header without options.
func (k kind) known(c *smt.Context) map[int]*smt.Term {
	out := map[int]*smt.Term{}
	put := func(at int, v ...byte) {
		for i, b := range v {
			out[at+i] = c.Const(8, uint64(b))
		}
	}
	ip := k.ip()
	if k.tagged {
		put(12, 0x81, 0x00)
	}
	if k.v6 {
		put(ip-2, 0x86, 0xdd)
		out[ip] = c.Concat(c.Const(4, 6), c.Var(fmt.Sprintf("low%d", ip), 4))
	} else {
		put(ip-2, 0x08, 0x00, 0x45)
	}
	if k.proto != 0 {
		put(k.protoAt(), k.proto)
	}
	return out
}

// protoAt returns the offset of the protocol.
func (k kind) protoAt() int {
	if k.v6 {
		return k.ip() + 6
	}
	return k.ip() + 9
}
