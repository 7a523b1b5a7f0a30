// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/floodwall/floodwall/test/testutil"
)

// TestDynamicOrigins inserts, refreshes and deletes automatic and other entries at random. Automatic entries must never cause other entries to be
// refused, changed or evicted. When the set is opened again, it must know which entries are automatic.
func TestDynamicOrigins(t *testing.T) {
	r := testutil.Random(t)
	for _, capacity := range []int{1, 4, 64, 500} {
		_, m := newDynamic(t, capacity)
		s := openDynamic(t, m).Sets[0]
		manual := map[netip.Prefix]uint32{}
		now := uint32(1)
		for step := range 5000 {
			e := Entry{Prefix: randomPrefix(r, 4*capacity), Expiry: now + 1 + r.Uint32N(100), Automatic: r.IntN(3) > 0}
			if r.IntN(50) == 0 {
				now += r.Uint32N(5)
				s = openDynamic(t, m).Sets[0]
			}
			for p, expiry := range manual {
				if expired(expiry, now) {
					delete(manual, p)
				}
			}
			switch {
			case r.IntN(4) == 0:
				s.Delete(e.Prefix, now)
				delete(manual, e.Prefix)
			case e.Automatic:
				_ = s.Insert(e, now)
			default:
				_, has := manual[e.Prefix]
				if err := s.Insert(e, now); (err == nil) != (has || len(manual) < capacity) {
					t.Fatalf("step %d: %d of %d entries are manual, one more: %v", step, len(manual), capacity, err)
				} else if err == nil {
					manual[e.Prefix] = e.Expiry
				}
			}
			if step%50 == 0 {
				checkOrigins(t, s, manual, now)
			}
		}
	}
}

func checkOrigins(t *testing.T, s *DynamicSet, manual map[netip.Prefix]uint32, now uint32) {
	t.Helper()
	found, automatic := 0, 0
	for e := range s.All(now) {
		expiry, is := manual[e.Prefix]
		switch {
		case is == e.Automatic || is && expiry != e.Expiry:
			t.Fatalf("%+v, manual: %t until %d", e, is, expiry)
		case is:
			found++
		default:
			automatic++
		}
	}
	if found != len(manual) {
		t.Fatalf("%d of %d manual entries are left", found, len(manual))
	}
	if space := s.automaticCapacity(); automatic > space {
		t.Fatalf("%d automatic entries, there is space for %d", automatic, space)
	}
}

// TestDynamicEvicts fills a set with automatic entries. The one that expires first must be evicted first.
func TestDynamicEvicts(t *testing.T) {
	d, _ := newDynamic(t, 8)
	s := d.Sets[0]
	for i := range 20 {
		e := entry(fmt.Sprintf("192.0.2.%d", i), uint32(1000-i), "")
		e.Automatic = true
		if err := s.Insert(e, 0); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 { // the first entries expire last; the last entry is the newest
		if !s.Contains(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 0) {
			t.Errorf("192.0.2.%d is gone, which ends late", i)
		}
	}
	if n := s.Count(0); n != 6 {
		t.Errorf("%d automatic entries in a set for 8, want 6", n)
	}
}
