// SPDX-License-Identifier: Apache-2.0

package addrs_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestText writes sets and reads them again. The prefixes must be the same.
func TestText(t *testing.T) {
	random := testutil.Random(t)
	for _, entries := range []int{0, 1, 2, 1000} {
		var b addrs.Builder
		for range entries {
			var v4 [4]byte
			var v6 [16]byte
			for i := range v6 {
				v4[i%4], v6[i] = byte(random.Uint32()), byte(random.Uint32())
			}
			b.Add(netip.PrefixFrom(netip.AddrFrom4(v4), 1+random.IntN(32)).Masked())
			b.Add(netip.PrefixFrom(netip.AddrFrom16(v6), 1+random.IntN(128)).Masked())
		}
		set := b.Set()
		text, err := set.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var again addrs.Set
		if err := again.UnmarshalText(text); err != nil {
			t.Fatalf("%d entries: %v", entries, err)
		}
		if want, got := slices.Collect(set.Prefixes()), slices.Collect(again.Prefixes()); !slices.Equal(want, got) {
			t.Errorf("%d entries: %v became %v", entries, want, got)
		}
		for cut := 4; cut < min(len(text), 400); cut += 4 {
			if again.UnmarshalText(text[:cut]) == nil {
				t.Errorf("%d entries: %d of %d bytes are taken for a set", entries, cut, len(text))
			}
		}
	}
	if new(addrs.Set).UnmarshalText([]byte("%%%%")) == nil {
		t.Error("what is not base64 is taken for a set")
	}
}
