// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// ReplyBucket returns the number of the bucket in which a flow is stored. With it, a test can fill a bucket without sending a million packets.
func ReplyBucket(k image.ReplySecrets, own, other netip.AddrPort) uint64 {
	return k.Index(k.Pair(other.Addr(), own.Addr()), image.ReplyPorts(other.Port(), own.Port()))
}

// InReplyBucket draws flows of the IPv4 address own until the bucket of one is wanted, and returns this flow. One flow in 2^17 is in a given bucket.
func InReplyBucket(r *rand.Rand, k image.ReplySecrets, own netip.Addr, wanted func(bucket uint64) bool) (from, to netip.AddrPort) {
	return drawn(r, own, func(own, other netip.AddrPort) bool { return wanted(ReplyBucket(k, own, other)) })
}

// ClientInReplyBucket draws clients of a UDP service until the bucket of one client's entry is wanted, and returns this client.
func ClientInReplyBucket(r *rand.Rand, k image.ReplySecrets, service netip.AddrPort, wanted func(bucket uint64) bool) (client netip.AddrPort) {
	_, client = drawn(r, service.Addr(), func(_, other netip.AddrPort) bool { return wanted(ReplyBucket(k, service, other)) })
	return client
}

// drawn draws the two ends of a flow until the function takes returns true for them.
func drawn(r *rand.Rand, own netip.Addr, takes func(own, other netip.AddrPort) bool) (from, to netip.AddrPort) {
	for {
		address := [4]byte{byte(20 + r.IntN(100)), byte(r.IntN(256)), byte(r.IntN(256)), byte(1 + r.IntN(254))}
		from = netip.AddrPortFrom(own, uint16(1024+r.IntN(60_000)))
		to = netip.AddrPortFrom(netip.AddrFrom4(address), uint16(1024+r.IntN(60_000)))
		if takes(from, to) {
			return from, to
		}
	}
}

// AnyInReplyBucket returns a random flow between two IPv4 addresses that is in a given bucket. It inverts the hash of ReplyBucket. That is possible
// because all factors are odd.
func AnyInReplyBucket(r *rand.Rand, k image.ReplySecrets, number uint64) (own, other netip.AddrPort) {
	for {
		far, near := uint16(1024+r.IntN(60_000)), uint16(1024+r.IntN(60_000))
		sum := number<<(64-image.ReplyBucketBits) | r.Uint64()>>image.ReplyBucketBits
		pair := (sum - uint64(image.ReplyPorts(far, near))*k[1]) * inverse(k[0])
		var raw [8]byte
		binary.LittleEndian.PutUint64(raw[:], pair)
		other = netip.AddrPortFrom(netip.AddrFrom4([4]byte(raw[:4])), far)
		own = netip.AddrPortFrom(netip.AddrFrom4([4]byte(raw[4:])), near)
		if raw[0] != 0 && raw[4] != 0 && raw[0] < 224 && raw[4] < 224 && !own.Addr().IsLoopback() && !other.Addr().IsLoopback() {
			return own, other
		}
	}
}

// inverse returns the multiplicative inverse of an odd number modulo 2^64. It uses Newton's method. The first value has three correct bits, and each
// step doubles the number of correct bits.
func inverse(odd uint64) uint64 {
	x := odd
	for range 5 {
		x *= 2 - odd*x
	}
	return x
}
