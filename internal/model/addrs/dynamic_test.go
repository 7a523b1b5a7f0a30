// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/test/testutil"
)

func openDynamic(t testing.TB, m DynamicMemory) *Dynamic {
	t.Helper()
	d, err := OpenDynamic(m)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func newDynamic(t testing.TB, capacities ...int) (*Dynamic, DynamicMemory) {
	t.Helper()
	m := NewDynamicMemory(capacities...)
	if err := m.Format(capacities...); err != nil {
		t.Fatal(err)
	}
	return openDynamic(t, m), m
}

// tight returns the memory of one set with fewer buckets than DynamicBuckets returns. So entries often find no free slot at home, must be moved,
// and may find no place at all.
func tight(t testing.TB, buckets, capacity int) DynamicMemory {
	t.Helper()
	m := NewDynamicMemory(buckets)
	if err := m.Format(buckets); err != nil {
		t.Fatal(err)
	}
	native.PutUint32(m.Info[infoMask:], uint32(buckets-1))
	native.PutUint32(m.Info[infoCapacity:], uint32(capacity))
	return m
}

func entry(text string, expiry uint32, why string) Entry {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		a := netip.MustParseAddr(text)
		p = netip.PrefixFrom(a, a.BitLen())
	}
	return Entry{Prefix: p, Expiry: expiry, Why: why}
}

// contents returns the entries that have not expired, as sorted text.
func contents(s *DynamicSet, now uint32) []string {
	var out []string
	for e := range s.All(now) {
		out = append(out, fmt.Sprintf("%s %d %s", e.Prefix, e.Expiry, e.Why))
	}
	slices.Sort(out)
	return out
}

func TestDynamic(t *testing.T) {
	d, m := newDynamic(t, 10, 20)
	a, b := d.Sets[0], d.Sets[1]
	for _, e := range []Entry{
		entry("192.0.2.1", 100, "scan"), entry("192.0.2.128/25", 0, ""), entry("2001:db8::/32", 200, "scan"),
		entry("192.0.2.1", 150, "flood"), entry("0.0.0.0/0", 50, "test"),
	} {
		if err := a.Insert(e, 10); err != nil {
			t.Fatal(err)
		}
	}
	a.Insert(entry("2001:db8::/32", 300, ""), 10) // an empty reason does not replace the previous one
	want := []string{"0.0.0.0/0 50 test", "192.0.2.1/32 150 flood", "192.0.2.128/25 0 ", "2001:db8::/32 300 scan"}
	if diff := cmp.Diff(want, contents(a, 10)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want[1:], contents(openDynamic(t, m).Sets[0], 50)); diff != "" {
		t.Error("opened again: ", diff)
	}
	if a.Count(10) != 4 || a.Count(50) != 3 || a.Count(1e9) != 1 || b.Count(0) != 0 {
		t.Errorf("counts %d %d %d %d", a.Count(10), a.Count(50), a.Count(1e9), b.Count(0))
	}
	for address, until := range map[string]uint32{"192.0.2.1": 150, "192.0.2.2": 50, "2001:db8::9": 300, "2001:db9::": 0} {
		for _, now := range []uint32{20, 49, 50, 149, 150, 299, 300} {
			if got := a.Contains(netip.MustParseAddr(address), now); got != (now < until) {
				t.Errorf("%s at %d: %v", address, now, got)
			}
		}
	}
	for _, row := range []struct {
		prefix string
		want   bool
	}{{"192.0.2.0/25", false}, {"192.0.2.1/32", true}, {"192.0.2.1/32", false}, {"0.0.0.0/0", false}} {
		if got := a.Delete(netip.MustParsePrefix(row.prefix), 60); got != row.want {
			t.Errorf("delete %s: %v", row.prefix, got)
		}
	}
}

func TestDynamicBadPrefix(t *testing.T) {
	d, _ := newDynamic(t, 10)
	for _, row := range []struct {
		prefix netip.Prefix
		want   string
	}{
		{netip.Prefix{}, "invalid prefix"},
		{netip.MustParsePrefix("::ffff:192.0.2.0/120"), "::ffff:192.0.2.0/120 stands for IPv4 addresses: write them as IPv4"},
	} {
		if err := d.Sets[0].Insert(Entry{Prefix: row.prefix}, 0); err == nil || err.Error() != row.want {
			t.Errorf("got %v, want %s", err, row.want)
		}
		if d.Sets[0].Delete(row.prefix, 0) {
			t.Errorf("%s was deleted", row.prefix)
		}
	}
	if err := d.Sets[0].Insert(entry("::/0", 0, ""), 0); err != nil || d.Sets[0].Contains(netip.MustParseAddr("1.2.3.4"), 0) {
		t.Errorf("::/0 holds IPv4 addresses, or %v", err)
	}
}

func TestDynamicFull(t *testing.T) {
	d, m := newDynamic(t, 3)
	s := d.Sets[0]
	for i, expiry := range []uint32{100, 0, 200} {
		if err := s.Insert(entry(fmt.Sprintf("192.0.2.%d", i), expiry, ""), 0); err != nil {
			t.Fatal(err)
		}
	}
	more := entry("192.0.2.9", 0, "")
	err := s.Insert(more, 99)
	if !errors.Is(err, ErrFull) || err.Error() != "inserting 192.0.2.9/32: the set is full" {
		t.Errorf("got %v", err)
	}
	if err := openDynamic(t, m).Sets[0].Insert(more, 99); !errors.Is(err, ErrFull) {
		t.Errorf("opened again: %v", err)
	}
	if err := s.Insert(entry("192.0.2.0", 150, ""), 99); err != nil {
		t.Errorf("refreshing in a full set: %v", err)
	}
	if err := s.Insert(more, 150); err != nil {
		t.Errorf("in place of a dead entry: %v", err)
	}
	if err := s.Insert(entry("192.0.2.10", 0, ""), 150); !errors.Is(err, ErrFull) {
		t.Errorf("got %v", err)
	}
	s.Delete(more.Prefix, 150)
	if err := s.Insert(entry("192.0.2.10", 0, ""), 150); err != nil {
		t.Errorf("in place of a deleted entry: %v", err)
	}
}

func TestDynamicReasons(t *testing.T) {
	d, m := newDynamic(t, 1000, 10)
	s := d.Sets[0]
	address := func(i int) netip.Prefix { return netip.PrefixFrom(addr4(0xc0000200+uint32(i)), 32) }
	for i := range 300 {
		expiry := uint32(0)
		if i < 50 {
			expiry = 100
		}
		s.Insert(Entry{Prefix: address(i), Expiry: expiry, Why: fmt.Sprint("reason ", i)}, 1)
	}
	check := func(s *DynamicSet, i int, want string) {
		t.Helper()
		for e := range s.All(99) {
			if e.Prefix == address(i) && e.Why != want {
				t.Errorf("entry %d has reason %q, want %q", i, e.Why, want)
			}
		}
	}
	check(s, 0, "reason 0")
	check(s, 246, "reason 246")
	check(s, 247, "") // there is no space for another text
	s.Insert(Entry{Prefix: address(299), Expiry: 0, Why: "reason 246"}, 2)
	check(s, 299, "reason 246")
	s.Delete(address(60), 3)
	s.Insert(Entry{Prefix: address(300), Expiry: 0, Why: "in place of reason 60"}, 4)
	check(s, 300, "in place of reason 60")
	for i := 301; i < 360; i++ {
		s.Insert(Entry{Prefix: address(i), Expiry: 0, Why: fmt.Sprint("late ", i)}, 100) // the first 50 have expired
	}
	again := openDynamic(t, m).Sets[0]
	check(again, 350, "late 350")
	check(again, 351, "")
	long := strings.Repeat("x", 63) + "\u00fc" + "y"
	d.Sets[1].Insert(entry("::1", 0, "\x00"), 200)
	d.Sets[1].Insert(entry("::2", 0, long), 200)
	s.Delete(address(100), 200)
	d.Sets[1].Insert(entry("::3", 0, long), 201)
	if diff := cmp.Diff([]string{"::1/128 0 ", "::2/128 0 ", "::3/128 0 " + long[:63]}, contents(d.Sets[1], 201)); diff != "" {
		t.Error(diff)
	}
}

// model is a dynamic set as a map.
type model map[netip.Prefix]uint32

func (m model) forget(now uint32) {
	maps.DeleteFunc(m, func(_ netip.Prefix, expiry uint32) bool { return expired(expiry, now) })
}

// TestDynamicModel compares a set with a map over random operations. Sometimes it opens the memory again. It tests both ample and tight memory.
func TestDynamicModel(t *testing.T) {
	r := testutil.Random(t)
	for _, m := range []DynamicMemory{tight(t, 1, 3), tight(t, 4, 12), tight(t, 64, 64), tight(t, 64, 192), tight(t, 256, 500)} {
		s := openDynamic(t, m).Sets[0]
		want := model{}
		now := uint32(1)
		for step := range 20_000 {
			p := randomPrefix(r, 3*s.Capacity())
			switch r.IntN(10) {
			case 0:
				now += r.Uint32N(3)
			case 1, 2:
				want.forget(now)
				_, alive := want[p]
				delete(want, p)
				if got := s.Delete(p, now); got != alive {
					t.Fatalf("step %d: delete %s: %v", step, p, got)
				}
			case 3:
				if r.IntN(100) == 0 {
					s = openDynamic(t, m).Sets[0]
				}
				a := randomPrefix(r, 3*s.Capacity()).Addr()
				if got := s.Contains(a, now); got != want.contains(a, now) {
					t.Fatalf("step %d: Contains(%s) is %v", step, a, got)
				}
			default:
				want.insert(t, s, Entry{Prefix: p, Expiry: (now + 1 + r.Uint32N(50)) * r.Uint32N(2)}, now)
			}
			if step%200 == 0 {
				want.check(t, s, now)
			}
		}
	}
}

func (m model) contains(a netip.Addr, now uint32) bool {
	for p, expiry := range m {
		if p.Contains(a) && !expired(expiry, now) {
			return true
		}
	}
	return false
}

func (m model) insert(t *testing.T, s *DynamicSet, e Entry, now uint32) {
	t.Helper()
	m.forget(now)
	_, alive := m[e.Prefix]
	err := s.Insert(e, now)
	full := !alive && len(m) == s.Capacity()
	crowded := s.Capacity() > int(s.buckets.mask)+1 && strings.Contains(fmt.Sprint(err), "at the place of this prefix")
	if full != errors.Is(err, ErrFull) && !crowded {
		t.Fatalf("%d of %d entries, insert: %v", len(m), s.Capacity(), err)
	}
	if err == nil {
		m[e.Prefix] = e.Expiry
	}
}

func (m model) check(t *testing.T, s *DynamicSet, now uint32) {
	t.Helper()
	m.forget(now)
	got := model{}
	for e := range s.All(now) {
		if _, twice := got[e.Prefix]; twice {
			t.Fatalf("%s is there twice", e.Prefix)
		}
		got[e.Prefix] = e.Expiry
	}
	if diff := cmp.Diff(m, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Fatalf("now %d: %.2000s", now, diff)
	}
	if s.Count(now) != len(m) {
		t.Fatalf("%d entries counted, there are %d", s.Count(now), len(m))
	}
}

// randomPrefix returns one of n prefixes, which have six lengths in each family.
func randomPrefix(r *rand.Rand, n int) netip.Prefix {
	i := r.Uint32N(uint32(n))
	if i%2 == 0 {
		return netip.PrefixFrom(addr4(0xc0000000+i*8), 32-int(i%3)).Masked()
	}
	return prefix6{0x20010db8<<32 | uint64(i), 0, uint8(64 - i%3)}.cut(uint8(64 - i%3)).netip()
}

// TestDynamicFills checks that sets with the buckets of DynamicBuckets accept entries up to their capacity.
func TestDynamicFills(t *testing.T) {
	r := testutil.Random(t)
	const capacity = 1 << 16
	d, _ := newDynamic(t, capacity)
	s := d.Sets[0]
	for i := range uint32(capacity) {
		if err := s.Insert(Entry{Prefix: netip.PrefixFrom(addr4(r.Uint32()<<16|i), 32)}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if s.Count(0) != capacity {
		t.Errorf("%d entries", s.Count(0))
	}
}

func TestDynamicCopy(t *testing.T) {
	d, _ := newDynamic(t, 10, 2, 20)
	from, small, large := d.Sets[0], d.Sets[1], d.Sets[2]
	for i := range 5 {
		from.Insert(entry(fmt.Sprintf("192.0.2.%d", i), uint32(i*10), fmt.Sprint("why ", i)), 0)
	}
	large.Insert(entry("2001:db8::1", 0, ""), 0)
	if err := large.Copy(from, 20); err != nil {
		t.Fatal(err)
	}
	want := []string{"192.0.2.0/32 0 why 0", "192.0.2.3/32 30 why 3", "192.0.2.4/32 40 why 4", "2001:db8::1/128 0 "}
	if diff := cmp.Diff(want, contents(large, 20)); diff != "" {
		t.Error(diff)
	}
	if err := small.Copy(from, 20); !errors.Is(err, ErrFull) || small.Count(20) != 2 {
		t.Errorf("%d entries, %v", small.Count(20), err)
	}
}

// TestDynamicReader checks that readers always find the entries that stay, while other entries are added, removed and moved. An entry is moved only a
// few times, so the test uses many tables. There are more readers than CPUs, so that some are interrupted in the middle of a search.
func TestDynamicReader(t *testing.T) {
	r := testutil.Random(t)
	var stay []netip.Addr
	for i := range uint32(60) {
		stay = append(stay, addr4(0x0a000000+i))
	}
	var table atomic.Pointer[DynamicMemory]
	fill := func() *DynamicSet {
		m := tight(t, 64, 190)
		s := openDynamic(t, m).Sets[0]
		for _, a := range stay {
			if err := s.Insert(Entry{Prefix: netip.PrefixFrom(a, 32)}, 0); err != nil {
				t.Fatal(err)
			}
		}
		table.Store(&m)
		return s
	}
	fill()
	var done atomic.Bool
	var readers sync.WaitGroup
	missed := make(chan netip.Addr, 8)
	for range cap(missed) {
		readers.Go(func() {
			for i := 0; !done.Load(); {
				reader := openDynamic(t, *table.Load()).Sets[0]
				for range 200 {
					i++
					if a := stay[i%len(stay)]; !reader.Contains(a, 0) {
						missed <- a
						return
					}
				}
			}
		})
	}
	for range 500 {
		s := fill()
		for range 400 {
			p := netip.PrefixFrom(addr4(0xc0000200+r.Uint32N(400)), 32-r.IntN(3)).Masked()
			if r.IntN(3) > 0 {
				s.Insert(Entry{Prefix: p}, 0)
			} else {
				s.Delete(p, 0)
			}
		}
	}
	done.Store(true)
	readers.Wait()
	close(missed)
	for a := range missed {
		t.Errorf("%s was not found for a moment", a)
	}
}

// TestDynamicMovesOutward checks that no entry is moved back towards its home. A search between the two slots would miss such an entry.
func TestDynamicMovesOutward(t *testing.T) {
	r := testutil.Random(t)
	s := openDynamic(t, tight(t, 64, 190)).Sets[0]
	places := map[prefix6]uint32{}
	for range 20_000 {
		p := netip.PrefixFrom(addr4(0xc0000200+r.Uint32N(400)), 32)
		key, _ := dynamicKey(p)
		if r.IntN(3) == 0 {
			s.Delete(p, 0)
			delete(places, key)
		} else if s.Insert(Entry{Prefix: p}, 0) == nil && places[key] == 0 {
			places[key] = 1
		}
		for key, before := range places {
			at, ok := s.buckets.find(key)
			place := (uint32(at.bucket())-s.buckets.home(key))&s.buckets.mask + 1
			if !ok || place < before {
				t.Fatalf("%v went from place %d to %d, found: %v", key, before, place, ok)
			}
			places[key] = place
		}
	}
}

func TestDynamicMemoryErrors(t *testing.T) {
	m := NewDynamicMemory(10)
	for _, row := range []struct {
		err  error
		want string
	}{
		{m.Format(10, 10), "memory of dynamic sets has space for 1 records, 2 are needed"},
		{m.Format(100), "memory of dynamic sets has 16 buckets, at least 128 are needed"},
		{DynamicMemory{Info: m.Info, Buckets: m.Buckets}.Format(10), "memory for the reasons of dynamic sets is too small"},
		{DynamicMemory{Info: m.Info, Buckets: m.Buckets[4:], Texts: m.Texts, Why: m.Why}.Format(10), "memory of dynamic sets is not aligned to 8 bytes"},
	} {
		if row.err == nil || row.err.Error() != row.want {
			t.Errorf("got %v, want %s", row.err, row.want)
		}
	}
	m.Format(10)
	native.PutUint32(m.Info[infoMask:], 1<<20-1)
	if _, err := OpenDynamic(m); err == nil || err.Error() != "record 0 of the dynamic sets is damaged" {
		t.Errorf("got %v", err)
	}
}

// TestDynamicMapped checks that an IPv4-mapped IPv6 address (RFC 4291, 2.5.5.2) differs from the IPv4 address.
func TestDynamicMapped(t *testing.T) {
	d, _ := newDynamic(t, 10)
	s := d.Sets[0]
	if err := s.Insert(entry("192.0.2.9", 0, ""), 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Insert(entry("::/64", 0, ""), 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Insert(entry("2001:db8::1", 0, ""), 0); err != nil {
		t.Fatal(err)
	}
	if !s.Contains(netip.MustParseAddr("192.0.2.9"), 1) || !s.Contains(netip.MustParseAddr("::ffff:192.0.2.9"), 1) {
		t.Error("192.0.2.9, or what ::/64 covers, is not found")
	}
	s.Delete(netip.MustParsePrefix("::/64"), 1)
	if s.Contains(netip.MustParseAddr("::ffff:192.0.2.9"), 1) {
		t.Error("::ffff:192.0.2.9 is found as 192.0.2.9")
	}
}
