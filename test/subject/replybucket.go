package subject

import (
	"encoding/binary"
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
