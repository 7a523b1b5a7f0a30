// SPDX-License-Identifier: Apache-2.0

package addrs_test

import (
	"net/netip"
	"testing"

	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestWithout compares Without and Both with Contains. The prefixes of the sets have few addresses, so that they
// often overlap.
func TestWithout(t *testing.T) {
	t.Parallel()
	random := testutil.Random(t)
	draw := func(v6 bool) netip.Addr {
		if v6 {
			b := netip.MustParseAddr("2001:db8::").As16()
			b[7], b[8], b[15] = byte(random.IntN(4)), byte(random.IntN(2))<<7, byte(random.IntN(16))
			return netip.AddrFrom16(b)
		}
		return netip.AddrFrom4([4]byte{byte(random.IntN(2) * 255), 0, byte(random.IntN(2) * 255), byte(random.IntN(256))})
	}
	set := func() *addrs.Set {
		var b addrs.Builder
		for range random.IntN(12) {
			a := draw(random.IntN(2) == 0)
			bits := a.BitLen() - random.IntN(10)
			if random.IntN(10) == 0 {
				bits = random.IntN(a.BitLen())
			}
			if p, err := a.Prefix(bits); err != nil || b.Add(p) != nil {
				t.Fatal(p, err)
			}
		}
		return b.Set()
	}
	for range testutil.Scaled(300, 30_000) {
		s, u := set(), set()
		without, both := s.Without(u), s.Both(u)
		for range 60 {
			a := draw(random.IntN(2) == 0)
			if got, want := without.Contains(a), s.Contains(a) && !u.Contains(a); got != want {
				t.Fatalf("%s is in %v without %v: %v, not %v (%v)", a, s, u, got, want, without)
			}
			if got, want := both.Contains(a), s.Contains(a) && u.Contains(a); got != want {
				t.Fatalf("%s is in %v and in %v: %v, not %v (%v)", a, s, u, got, want, both)
			}
		}
	}
}
