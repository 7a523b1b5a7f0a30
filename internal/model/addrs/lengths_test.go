// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"go4.org/netipx"
)

// TestDynamicLengths inserts prefixes of every length into a set. Some are automatic entries, others are not. No entry may replace another one, and
// each must expire independently. Afterwards, a lookup must not try lengths that no entry has.
func TestDynamicLengths(t *testing.T) {
	for _, row := range []struct{ address, far string }{{"192.0.2.1", "65.0.2.1"}, {"2001:db8::1", "8000::1"}} {
		d, m := newDynamic(t, 200)
		s, address := d.Sets[0], netip.MustParseAddr(row.address)
		prefix := func(bits int) netip.Prefix { return netip.PrefixFrom(address, bits).Masked() }
		for i := range address.BitLen() + 1 {
			bits := (i*7 + 24) % (address.BitLen() + 1) // in mixed order
			if err := s.Insert(Entry{Prefix: prefix(bits), Expiry: uint32(200 + bits), Automatic: bits%3 == 0}, 0); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.Count(0); n != address.BitLen()+1 {
			t.Errorf("%d entries, want one of each length", n)
		}
		for bits := range address.BitLen() + 1 { // all shorter prefixes have expired
			now := uint32(200 + bits - 1)
			last := netipx.PrefixLastIP(prefix(bits))
			if !s.Contains(last, now) || bits > 0 && s.Contains(last, now+uint32(address.BitLen())) {
				t.Errorf("%s is found wrongly", prefix(bits))
			}
			if bits > 0 && s.Contains(netip.MustParseAddr(row.far), now) {
				t.Errorf("%s has %s", prefix(bits), row.far)
			}
		}
		s = openDynamic(t, m).Sets[0]
		if err := s.Insert(Entry{Prefix: prefix(30)}, 1000); err != nil {
			t.Fatal(err)
		}
		key, err := dynamicKey(netip.PrefixFrom(address, address.BitLen()))
		if got := s.lengthsAt(key, key.family()); err != nil || len(got) != 1 {
			t.Errorf("a lookup asks for lengths %v, want one", got)
		}
	}
}

// TestDynamicLengthsApart inserts prefixes of many lengths, each for other addresses. A lookup must try only the lengths that apply to its own
// address.
func TestDynamicLengthsApart(t *testing.T) {
	d, _ := newDynamic(t, 100)
	s := d.Sets[0]
	for _, bits := range []int{16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32} {
		for family, a := range []netip.Addr{netip.AddrFrom4([4]byte{byte(bits), 7}), netip.AddrFrom16([16]byte{0x20, 1, byte(bits), 7})} {
			if err := s.Insert(Entry{Prefix: netip.PrefixFrom(a, bits<<family)}, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, text := range []string{"20.7.0.1", "2001:1407::1"} {
		a := netip.MustParseAddr(text)
		key, _ := dynamicKey(netip.PrefixFrom(a, a.BitLen()))
		if got := s.lengthsAt(key, key.family()); !s.Contains(a, 0) || len(got) > 3 {
			t.Errorf("%s is asked for with lengths %v", a, got)
		}
	}
}

// TestDynamicEarlier uses memory of an earlier format, which has space for 8 lengths per family. The memory must keep its entries. All of them must
// be copied to memory of the present format.
func TestDynamicEarlier(t *testing.T) {
	m := NewDynamicMemory(100)
	if err := m.Format(100); err != nil {
		t.Fatal(err)
	}
	m.Lengths = nil
	for i := range 16 {
		m.Info[earlierAbsent+i] = 0xff
	}
	s := openDynamic(t, m).Sets[0]
	insert := func(bits int) error {
		return s.Insert(Entry{Prefix: netip.PrefixFrom(netip.MustParseAddr("192.0.2.1"), bits)}, 0)
	}
	for _, bits := range []int{24, 32, 8, 9, 31, 10, 28, 16} {
		if err := insert(bits); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.earlierLengths(0); !slices.Equal(got, []uint8{128, 127, 124, 120, 112, 106, 105, 104}) {
		t.Errorf("lengths are %v, want the longest first", got)
	}
	if err := insert(20); !errors.Is(err, ErrLengths) {
		t.Errorf("a ninth length: %v", err)
	}
	if err := s.Insert(entry("2001:db8::/20", 0, ""), 0); err != nil {
		t.Errorf("IPv6 has lengths of its own: %v", err)
	}
	if got := native.Uint64(m.Info[earlierAbsent:]) | native.Uint64(m.Info[earlierAbsent+8:]); got != 0 {
		t.Errorf("addresses are absent: %x", got)
	}
	next, _ := newDynamic(t, 100)
	if err := next.Sets[0].Copy(s, 0); err != nil || next.Sets[0].Count(0) != 9 {
		t.Errorf("copied %d of 9 entries, %v", next.Sets[0].Count(0), err)
	}
	for _, a := range []string{"192.1.2.1", "2001:db8:ffff::1"} {
		if a := netip.MustParseAddr(a); !s.Contains(a, 0) || !next.Sets[0].Contains(a, 0) {
			t.Errorf("%s is not found", a)
		}
	}
}
