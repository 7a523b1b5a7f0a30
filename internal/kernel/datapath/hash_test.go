// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
)

// TestHash changes bits of an address that a multiplication by an odd factor cannot spread. Without the key, an attacker must not be able to find
// flows with the same hash.
func TestHash(t *testing.T) {
	server := netip.MustParseAddrPort("[2001:db8:1::1]:80")
	client := netip.MustParseAddr("2001:db8::7").As16()
	flipped := func(hi, lo uint64) Connection {
		a := client
		binary.BigEndian.PutUint64(a[:8], binary.BigEndian.Uint64(a[:8])^hi)
		binary.BigEndian.PutUint64(a[8:], binary.BigEndian.Uint64(a[8:])^lo)
		return Connection{netip.AddrPortFrom(netip.AddrFrom16(a), 4000), server}
	}
	for range 1000 {
		f := &Table{key: [2]uint64{rand.Uint64(), rand.Uint64()}}
		hash := f.hash(flipped(0, 0))
		for shift := range 33 {
			for low := range uint64(8) {
				lo := (2*low + 1) << 60
				for _, c := range []Connection{flipped(1<<63, 1<<63|1<<63>>shift), flipped(1<<60, lo|lo>>shift)} {
					if hash == f.hash(c) {
						t.Fatalf("with key %#x, %v has the same hash as %v", f.key, c.Client, client)
					}
				}
			}
		}
	}
}
