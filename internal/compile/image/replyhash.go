// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/binary"
	"net/netip"
)

// ReplySecrets is struct reply_secrets of bpf/replyflow.h. It has two factors of the index, three numbers of the tag, and four numbers that are added
// to the words of IPv6 addresses. Addresses and ports are hashed in network byte order, but are read as little-endian numbers.
type ReplySecrets [9]uint64

// ReplySecretsOf reads the secrets at the start of a map ReplyFilter.
func ReplySecretsOf(filter []byte) (k ReplySecrets) {
	for i := range k {
		k[i] = binary.LittleEndian.Uint64(filter[8*i:])
	}
	return k
}

// Pair combines both addresses, which have the same family: reply_ends4() and reply_addresses6().
func (k *ReplySecrets) Pair(other, own netip.Addr) (pair uint64) {
	if other.Is4() {
		a, b := other.As4(), own.As4()
		return uint64(binary.LittleEndian.Uint32(b[:]))<<32 | uint64(binary.LittleEndian.Uint32(a[:]))
	}
	for i, addr := range []netip.Addr{other, own} {
		a := addr.As16()
		for half, secret := range k[5+2*i : 7+2*i] {
			word := binary.LittleEndian.Uint64(a[8*half:]) + secret
			pair += word & 0xffffffff * (word >> 32) // reply_product()
		}
	}
	return pair
}

// ReplyPorts returns both ports as one number, in the order of a packet from the other side.
func ReplyPorts(other, own uint16) uint32 {
	var raw [4]byte
	binary.BigEndian.PutUint16(raw[:], other)
	binary.BigEndian.PutUint16(raw[2:], own)
	return binary.LittleEndian.Uint32(raw[:])
}

// Index returns the number of the bucket: reply_index().
func (k *ReplySecrets) Index(pair uint64, ports uint32) uint64 {
	return (pair*k[0] + uint64(ports)*k[1]) >> (64 - ReplyBucketBits)
}

// Hash returns a hash whose upper bits are the tag: hash_reply_key(). kind is ReplyTCP, ReplyUDP or ReplyIssued.
func (k *ReplySecrets) Hash(pair uint64, ports uint32, kind uint64) uint64 {
	hash := (pair ^ k[2]) * k[3]
	return (hash ^ hash>>32 ^ uint64(ports) ^ kind<<32) * k[4]
}
