// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/kernel/nftable"
)

// expression evaluates an expression as net/netfilter/nf_tables_core.c and nft_*.c of Linux do.
func (s *netRule) expression(e nftable.Expression) error {
	switch e := e.(type) {
	case nftable.Payload:
		return s.payload(e)
	case nftable.Meta:
		return s.meta(e)
	case nftable.Ct:
		return s.ct(e)
	case nftable.CtSet:
		if e.Key != unix.NFT_CT_ZONE {
			return fmt.Errorf("not covered: ct key %d is written", e.Key)
		}
	case nftable.Fib:
		return s.fib(e)
	case nftable.Exthdr:
		return s.exthdr(e)
	case nftable.Bitwise:
		from, err := s.bytesOf(e.From, len(e.Mask))
		if err != nil {
			return err
		}
		out := make([]*smt.Term, len(from))
		for i, b := range from {
			out[i] = s.BitXor(s.BitAnd(b, s.Const(8, uint64(e.Mask[i]))), s.Const(8, uint64(e.Xor[i])))
		}
		s.store(e.To, out)
	case nftable.Byteorder:
		from, err := s.bytesOf(e.From, e.Bytes)
		if err != nil {
			return err
		}
		out := make([]*smt.Term, len(from))
		for i := range from {
			number := i / e.Size * e.Size
			out[i] = from[number+e.Size-1-i%e.Size]
		}
		s.store(e.To, out)
	case nftable.Cmp:
		return s.compare(e)
	case nftable.Range:
		from, err := s.bytesOf(e.From, len(e.Min))
		if err != nil {
			return err
		}
		words := s.words(from)
		in := s.between(words, span{e.Min, e.Max})
		if e.Outside {
			in = s.Not(in)
		}
		s.need(in)
	case nftable.Lookup:
		return s.lookup(e)
	case nftable.Immediate:
		return s.decide(e.Verdict, s.True())
	case nftable.Value:
		var out []*smt.Term
		for _, b := range e.Bytes {
			out = append(out, s.Const(8, uint64(b)))
		}
		s.store(e.To, out)
	case nftable.Objref:
		return s.object(e)
	case nftable.Dynset:
		return s.dynset(e)
	case nftable.Reject:
		s.wrongAnswer = s.Or(s.wrongAnswer, s.And(s.alive(), s.Bool(!s.answers(e))))
		s.rejected = s.Or(s.rejected, s.alive())
		s.end()
	case nftable.Synproxy:
		if s.kind.proto != protoTCP {
			s.need(s.False())
			return nil
		}
		s.proxied = s.Or(s.proxied, s.alive())
		s.end()
	case nftable.Notrack:
		// No verdict. The proof does not cover which packets are exempted.
	case nftable.Unknown:
		return fmt.Errorf("not covered: %w", e.Cause)
	default:
		return fmt.Errorf("not covered: the expression %T", e)
	}
	return nil
}

// end stops all packets that match the rule until now.
func (s *netRule) end() {
	s.gone = s.Or(s.gone, s.matched)
	s.matched = s.False()
}

// answers reports whether a rejection sends the answer of the policy: a TCP reset for TCP, and for other protocols an ICMP error that the port is
// closed.
func (s *netRule) answers(e nftable.Reject) bool {
	if s.kind.proto == protoTCP {
		return e.Type == unix.NFT_REJECT_TCP_RST
	}
	unreachable := uint8(3)
	if s.kind.v6 {
		unreachable = 4
	}
	return e.Type == unix.NFT_REJECT_ICMPX_UNREACH && e.Code == unix.NFT_REJECT_ICMPX_PORT_UNREACH ||
		e.Type == unix.NFT_REJECT_ICMP_UNREACH && e.Code == unreachable
}

// store writes bytes to registers. Like the kernel, it writes zeros up to the next multiple of 32 bits.
func (s *netRule) store(to int, bytes []*smt.Term) {
	for i := range (len(bytes) + 3) &^ 3 {
		b := s.Const(8, 0)
		if i < len(bytes) {
			b = bytes[i]
		}
		s.file[to+i] = b
	}
}

// bytesOf reads registers. It returns an error if the rule has not written a register, because the kernel would refuse the rule.
func (s *netRule) bytesOf(from, n int) ([]*smt.Term, error) {
	if from+n > len(s.file) {
		return nil, fmt.Errorf("%d bytes of registers from %d on", n, from)
	}
	for i := range n {
		if s.file[from+i] == nil {
			return nil, fmt.Errorf("not covered: byte %d of the registers is read before it is written", from+i)
		}
	}
	return s.file[from : from+n], nil
}

// host returns the bytes of a number in the host's byte order.
func (s *netRule) host(t *smt.Term) (out []*smt.Term) {
	for at := uint8(0); at < t.Width; at += 8 {
		out = append(out, s.Extract(t, at, 8))
	}
	return out
}

func (s *netRule) compare(e nftable.Cmp) error {
	from, err := s.bytesOf(e.From, len(e.Value))
	if err != nil {
		return err
	}
	words, value := s.words(from), numbers(e.Value)
	less, same := s.below(words, value), s.equal(words, value)
	switch e.Op {
	case unix.NFT_CMP_EQ:
		s.need(same)
	case unix.NFT_CMP_NEQ:
		s.need(s.Not(same))
	case unix.NFT_CMP_LT:
		s.need(less)
	case unix.NFT_CMP_LTE:
		s.need(s.Or(less, same))
	case unix.NFT_CMP_GT:
		s.need(s.Not(s.Or(less, same)))
	case unix.NFT_CMP_GTE:
		s.need(s.Not(less))
	default:
		return fmt.Errorf("not covered: the comparison %d", e.Op)
	}
	return nil
}

// metaTime is NFT_META_TIME_NS.
const metaTime = 30

// Offsets of headers in the part of the packet that nft calls a base.
const (
	ttl4At = 8
	ttl6At = 7
)

// payload loads bytes of the packet. If they are missing, the rule does not match.
func (s *netRule) payload(e nftable.Payload) error {
	d := s.decoded
	var out []*smt.Term
	switch e.Base {
	case unix.NFT_PAYLOAD_LL_HEADER:
		// The kernel inserts a removed tag again (nft_payload_copy_vlan). Frames of a VLAN device have no tag any more.
		if !s.hook.ingress && d.kind.tagged && e.Offset+e.Bytes > 12 {
			return fmt.Errorf("not covered: bytes of a frame's tag at %s", s.hook.name)
		}
		out = d.bytes(e.Offset, e.Bytes)
		s.need(s.there(e.Offset + e.Bytes))
	case unix.NFT_PAYLOAD_NETWORK_HEADER:
		at := d.kind.ip() + e.Offset
		out = d.bytes(at, e.Bytes)
		s.need(s.there(at + e.Bytes))
		s.forwardedTTL(e, out)
		s.seen(out, at, d.destinationAt(), "address")
	case unix.NFT_PAYLOAD_TRANSPORT_HEADER:
		at := d.payload + e.Offset
		out = d.bytes(at, e.Bytes)
		s.need(s.there(at + e.Bytes))
		if d.kind.proto == protoTCP || d.kind.proto == protoUDP {
			s.seen(out, at, [2]int{d.payload + 2, d.payload + 4}, "port")
		}
	case unix.NFT_PAYLOAD_INNER_HEADER:
		switch d.kind.proto {
		case protoTCP:
		case protoUDP:
			return s.payload(nftable.Payload{To: e.To, Base: unix.NFT_PAYLOAD_TRANSPORT_HEADER, Offset: 8 + e.Offset, Bytes: e.Bytes})
		case 0: // in some of the packets, the kernel finds a payload
			s.need(s.Var("has_inner", 0))
			for i := range e.Bytes {
				out = append(out, s.Var(fmt.Sprintf("inner%d", e.Offset+i), 8))
			}
			s.store(e.To, out)
			return nil
		default:
			s.need(s.False())
			return nil
		}
		words := s.Extract(d.l4(12, 1), 4, 4)
		for i := range e.Bytes {
			out = append(out, s.atWords(words, d.payload+e.Offset+i))
		}
		there := s.False()
		for n := range uint64(16) {
			there = s.Or(there, s.And(s.is(words, n), s.there(d.payload+int(n)*4+e.Offset+e.Bytes)))
		}
		s.need(there)
	default:
		return fmt.Errorf("not covered: payload of base %d", e.Base)
	}
	s.store(e.To, out)
	return nil
}

// forwardedTTL decrements the TTL if the packet was forwarded.
func (s *netRule) forwardedTTL(e nftable.Payload, out []*smt.Term) {
	at := ttl4At
	if s.kind.v6 {
		at = ttl6At
	}
	if s.hook.forwarded && e.Offset <= at && at < e.Offset+e.Bytes {
		out[at-e.Offset] = s.Sub(out[at-e.Offset], s.Const(8, 1))
	}
}

// atWords returns the byte that lies a number of 4-byte words after an offset.
func (d *decoded) atWords(words *smt.Term, at int) *smt.Term {
	out := d.frame.byte(at)
	for n := 1; n < 16; n++ {
		out = d.Ite(d.is(words, uint64(n)), d.frame.byte(at+4*n), out)
	}
	return out
}

// there returns a formula that holds if the packet has all bytes up to an offset in the frame. It assumes that both headers are complete. After
// ingress the kernel has truncated the packet to the length in the IP header.
func (s *netRule) there(end int) *smt.Term {
	d := s.decoded
	if end <= d.payload+d.kind.l4Header() {
		return s.True()
	}
	if s.hook.ingress {
		return s.ULE(s.Const(64, uint64(end)), d.frame.length)
	}
	return s.ULE(d.n(uint64(end-d.kind.ip())), d.total)
}

// l4Header returns the length of the L4 header without options.
func (k kind) l4Header() int {
	switch k.proto {
	case 0:
		return 0
	case protoTCP:
		return 20
	}
	return 8
}

func (s *netRule) meta(e nftable.Meta) error {
	family, etherType := uint64(unix.NFPROTO_IPV4), uint64(unix.ETH_P_IP)
	if s.kind.v6 {
		family, etherType = unix.NFPROTO_IPV6, unix.ETH_P_IPV6
	}
	one := func(v uint64) []*smt.Term { return []*smt.Term{s.Const(8, v)} }
	switch e.Key {
	case unix.NFT_META_NFPROTO:
		s.store(e.To, one(family))
	case unix.NFT_META_L4PROTO:
		s.store(e.To, []*smt.Term{s.protocol()})
	case unix.NFT_META_PROTOCOL:
		s.store(e.To, []*smt.Term{s.Const(8, etherType>>8), s.Const(8, etherType)})
	case unix.NFT_META_IIFTYPE:
		s.store(e.To, s.host(s.Const(16, unix.ARPHRD_ETHER)))
	case unix.NFT_META_IIFNAME:
		s.store(e.To, s.world.deviceName(s.decoded, s.hook))
	case unix.NFT_META_IIF:
		s.store(e.To, s.host(s.world.deviceIndex(s.Context)))
	case metaTime:
		s.store(e.To, s.host(s.Var("now", 64)))
	default:
		return fmt.Errorf("not covered: meta key %d", e.Key)
	}
	return nil
}

// Bits of a connection that nft tests: NF_CT_STATE_BIT and enum ip_conntrack_status.
const (
	ctInvalid     = 1
	ctEstablished = 2
	ctRelated     = 4
	ctNew         = 8
	ctUntracked   = 64
	statusSeen    = 1 << 3 // IPS_CONFIRMED
	statusSource  = 1 << 4 // IPS_SRC_NAT
	statusTarget  = 1 << 5 // IPS_DST_NAT
)

// ct loads the state of connection tracking. An invalid or untracked packet belongs to no connection.
func (s *netRule) ct(e nftable.Ct) error {
	state := s.field[stateField]
	if !s.hook.tracked {
		if e.Key != unix.NFT_CT_STATE || e.Direction >= 0 {
			return fmt.Errorf("not covered: connection tracking is asked at %s", s.hook.name)
		}
		s.store(e.To, s.host(s.Var("ct_exempted", 32))) // another chain has exempted the packet
		return nil
	}
	connected := s.world.connected(s.decoded)
	if e.Key == unix.NFT_CT_STATE && e.Direction < 0 {
		bits := s.n(ctUntracked)
		for i, bit := range []uint64{ctNew, ctEstablished, ctRelated, ctInvalid} {
			bits = s.Ite(s.is(state, uint64(i)), s.n(bit), bits)
		}
		s.store(e.To, s.host(bits))
		return nil
	}
	s.need(connected)
	switch {
	case e.Key == unix.NFT_CT_STATUS && e.Direction < 0:
		s.store(e.To, s.host(s.world.ctStatus(s.Context)))
	case e.Key == unix.NFT_CT_ZONE && e.Direction < 0: // the zone of forged sources is not part of the proof: no packet of these sources is a reply
		s.store(e.To, s.host(s.Const(16, 0)))
	case e.Key == unix.NFT_CT_DIRECTION:
		s.store(e.To, []*smt.Term{s.world.direction(s.Context)})
	case e.Direction < 0:
		return fmt.Errorf("not covered: ct key %d", e.Key)
	case e.Key == unix.NFT_CT_PROTO_DST && (s.kind.proto == protoTCP || s.kind.proto == protoUDP):
		s.store(e.To, s.cameWith(e, s.bytes(s.decoded.payload+2, 2)))
	case e.Key == unix.NFT_CT_PROTO_DST:
		s.store(e.To, s.cameWith(e, []*smt.Term{s.Var("ct_number_0", 8), s.Var("ct_number_1", 8)}))
	case e.Key == unix.NFT_CT_DST_IP && !s.kind.v6, e.Key == unix.NFT_CT_DST_IP6 && s.kind.v6:
		s.store(e.To, s.cameWith(e, s.dest))
	case e.Key == unix.NFT_CT_DST_IP || e.Key == unix.NFT_CT_DST_IP6: // the address is of the other family
		s.need(s.False())
	default:
		return fmt.Errorf("not covered: ct key %d", e.Key)
	}
	return nil
}

// cameWith returns the destination with which a packet arrived, in the packet's direction of the connection. For the other direction, it returns an
// unknown value.
func (s *netRule) cameWith(e nftable.Ct, own []*smt.Term) (out []*smt.Term) {
	mine := s.is(s.world.direction(s.Context), uint64(e.Direction))
	for i, b := range own {
		out = append(out, s.Ite(mine, b, s.Var(fmt.Sprintf("ct_%d_%d_%d", e.Key, e.Direction, i), 8)))
	}
	return out
}

// seen replaces the destination with which the packet arrived by the one that NAT has set. of is the begin and the end of the destination in the
// bytes from an offset on.
func (s *netRule) seen(out []*smt.Term, at int, of [2]int, what string) {
	if !s.hook.tracked {
		return
	}
	for i := range out {
		if n := at + i - of[0]; n >= 0 && at+i < of[1] {
			out[i] = s.Ite(s.world.translated(s.decoded), s.world.newByte(s.Context, what, n), out[i])
		}
	}
}

// destinationAt returns the begin and the end of the destination address in the frame.
func (d *decoded) destinationAt() [2]int {
	if d.kind.v6 {
		return [2]int{d.kind.ip() + 24, d.kind.ip() + 40}
	}
	return [2]int{d.kind.ip() + 16, d.kind.ip() + 20}
}

// protocol returns the packet's protocol.
func (d *decoded) protocol() *smt.Term { return d.frame.byte(d.kind.protoAt()) }

// fib loads the type of an address.
func (s *netRule) fib(e nftable.Fib) error {
	address, side := slices.Clone(s.dest), "destination"
	s.seen(address, 0, [2]int{0, len(address)}, "address")
	if e.Source {
		address, side = s.source, "source"
	}
	if s.hook.ingress {
		return fmt.Errorf("not covered: the routing table is asked at %s", s.hook.name)
	}
	kind := s.Ite(s.world.own(s.decoded, address), s.n(unix.RTN_LOCAL), s.world.addressType(s.Context, side))
	s.store(e.To, s.host(kind))
	return nil
}

// Kinds of headers for which nft searches: enum nft_exthdr_op.
const (
	headerIPv6 = 0
	optionTCP  = 1
	optionIPv4 = 2
	optionMSS  = 2
)

// exthdr searches for a header or an option. Usual frames have no extension headers and no IPv4 options.
func (s *netRule) exthdr(e nftable.Exthdr) error {
	there, value := s.False(), []*smt.Term(nil)
	switch e.Op {
	case headerIPv6:
		if !s.kind.v6 {
			s.need(s.False())
			return nil
		}
	case optionIPv4:
		if s.kind.v6 {
			s.need(s.False())
			return nil
		}
	case optionTCP:
		if e.Type != optionMSS {
			return fmt.Errorf("not covered: option %d of TCP", e.Type)
		}
		var size *smt.Term
		if there, size = s.world.mss(s.decoded); e.Present {
			break
		}
		if e.Offset != 2 || e.Bytes != 2 {
			return fmt.Errorf("not covered: %d bytes of an option of TCP from %d on", e.Bytes, e.Offset)
		}
		value = []*smt.Term{s.Extract(size, 8, 8), s.Extract(size, 0, 8)}
	default:
		return fmt.Errorf("not covered: exthdr of kind %d", e.Op)
	}
	if e.Present {
		s.store(e.To, []*smt.Term{s.Ite(there, s.Const(8, 1), s.Const(8, 0))})
		return nil
	}
	s.need(there)
	if value == nil {
		for range e.Bytes {
			value = append(value, s.Const(8, 0))
		}
	}
	s.store(e.To, value)
	return nil
}
