package subject

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// ReplyBucket is the number of the bucket of a connection, by the first of the table's keys: reply_index() of bpf/replyflow.h. Tests aim at buckets
// by it, to fill them without a million packets.
func ReplyBucket(secret uint64, own, other netip.AddrPort) uint64 {
	raw := func(a netip.Addr) []byte { return append(make([]byte, 4), a.AsSlice()...) }
	o, w := raw(other.Addr()), raw(own.Addr())
	near := binary.LittleEndian.Uint64(o[len(o)-8:])
	if other.Addr().Is4() {
		near >>= 32
	}
	var ports [4]byte
	binary.BigEndian.PutUint16(ports[:], other.Port())
	binary.BigEndian.PutUint16(ports[2:], own.Port())
	rest := uint64(binary.LittleEndian.Uint32(ports[:]))<<32 | uint64(binary.LittleEndian.Uint32(w[len(w)-4:]))
	return (near + rest*image.ReplyTCP) * secret >> (64 - image.ReplyBucketBits)
}

// InReplyBucket draws a connection of an address of IPv4 whose bucket has the number: ReplyBucket the other way round, as all factors are odd.
func InReplyBucket(r *rand.Rand, secret uint64, own netip.Addr, number uint64) (from, to netip.AddrPort) {
	for {
		product := number<<(64-image.ReplyBucketBits) | r.Uint64()>>image.ReplyBucketBits
		sum := product*inverse(secret) - uint64(binary.LittleEndian.Uint32(own.AsSlice()))*image.ReplyTCP
		var address, ports [4]byte
		binary.LittleEndian.PutUint32(address[:], uint32(sum))
		binary.LittleEndian.PutUint32(ports[:], uint32(sum>>32)*uint32(inverse(image.ReplyTCP)))
		from = netip.AddrPortFrom(own, binary.BigEndian.Uint16(ports[2:]))
		to = netip.AddrPortFrom(netip.AddrFrom4(address), binary.BigEndian.Uint16(ports[:]))
		if to.Addr().IsGlobalUnicast() && address[0] != 0 && address[0] < 240 && from.Port() >= 1024 && to.Port() != 0 {
			return from, to
		}
	}
}

// ClientInReplyBucket returns a random client of a UDP service whose word is in a bucket with a number, by the same key.
func ClientInReplyBucket(r *rand.Rand, secret uint64, service netip.AddrPort, number uint64) netip.AddrPort {
	for {
		address := [4]byte{byte(20 + r.IntN(100)), byte(r.IntN(256)), byte(r.IntN(256)), byte(1 + r.IntN(254))}
		var ports [4]byte
		binary.BigEndian.PutUint16(ports[:], uint16(1024+r.IntN(60_000)))
		binary.BigEndian.PutUint16(ports[2:], service.Port())
		far := uint64(binary.LittleEndian.Uint32(ports[:]))<<32 | uint64(binary.LittleEndian.Uint32(service.Addr().AsSlice()))
		if (uint64(binary.LittleEndian.Uint32(address[:]))+far*image.ReplyUDP)*secret>>(64-image.ReplyBucketBits) == number {
			return netip.AddrPortFrom(netip.AddrFrom4(address), binary.BigEndian.Uint16(ports[:]))
		}
	}
}

// inverse returns the number by which an odd one multiplied is 1, by Newton's method: each step has twice as many bits right, of three.
func inverse(odd uint64) uint64 {
	x := odd
	for range 5 {
		x *= 2 - odd*x
	}
	return x
}
