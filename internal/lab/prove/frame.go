package prove

import (
	"fmt"

	"github.com/floodwall/floodwall/internal/lab/prove/smt"
)

// frame is any frame: a variable for each byte that is read, and one for the length.
type frame struct {
	*smt.Context
	length *smt.Term         // 64 bits, at most 2^17-1
	known  map[int]*smt.Term // bytes of which something is known
	read   map[int]bool
}

const lengthBits = 17 // of a frame's length: more than the 65,535 bytes of IP and two headers

func newFrame(c *smt.Context, known map[int]*smt.Term) *frame {
	return &frame{c, c.ZExt(c.Var("length", lengthBits), 64), known, map[int]bool{}}
}

// byte is a byte of the frame, by its offset.
func (f *frame) byte(at int) *smt.Term {
	if t := f.known[at]; t != nil {
		return t
	}
	f.read[at] = true
	return f.Var(byteName(at), 8)
}

func byteName(at int) string { return fmt.Sprintf("byte%d", at) }

// load reads a number of some bytes as a little-endian machine does.
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

// kind is a kind of usual frames. The entry has a section for each, which frames with and without a tag share.
type kind struct {
	tagged bool
	v6     bool
	proto  byte // 0: any that is none of the others, and no extension header
}

const (
	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
)

// kinds are all kinds of usual frames.
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

// ip is the offset of the IP header.
func (k kind) ip() int {
	if k.tagged {
		return 18
	}
	return 14
}

// header is the length of the IP header.
func (k kind) ipHeader() int {
	if k.v6 {
		return 40
	}
	return 20
}

// known are the bytes by which a frame is of the kind: EtherTypes, the IP version and, in IPv4, the header length of one without options, and
// the protocol.
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

// protoAt is the offset of the protocol.
func (k kind) protoAt() int {
	if k.v6 {
		return k.ip() + 6
	}
	return k.ip() + 9
}
