// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/test/testutil"
)

// encoded is a table that was written to memory.
type encoded struct {
	*Table
	m4 V4Memory
	m6 V6Memory
}

func build(t testing.TB, sets ...naive) encoded {
	t.Helper()
	var built []*Set
	for _, n := range sets {
		built = append(built, n.set(t))
	}
	table, err := Build(built)
	if err != nil {
		t.Fatal(err)
	}
	return encode(t, table)
}

func encode(t testing.TB, table *Table) encoded {
	t.Helper()
	e := encoded{table, table.V4.NewMemory(), table.V6.NewMemory()}
	if err := e.V4.Encode(e.m4); err != nil {
		t.Fatal(err)
	}
	if err := e.V6.Encode(e.m6); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e encoded) lookup(a netip.Addr) uint16 {
	if a.Is4() {
		return e.V4.Lookup(e.m4, number4(a))
	}
	return e.V6.Lookup(e.m6, a)
}

// check compares the sets of an address's class with the sets that contain the address.
func (e encoded) check(t testing.TB, sets []naive, a netip.Addr) {
	t.Helper()
	var want []int32
	for i, n := range sets {
		if n.contains(a) {
			want = append(want, int32(i))
		}
	}
	class := e.lookup(a)
	if got := e.Members[class]; !slices.Equal(got, want) {
		t.Fatalf("%v: %s has class %d of sets %v, but is in %v", sets, a, class, got, want)
	}
	if len(want) == 0 && class != 0 {
		t.Fatalf("%v: %s is in no set, but has class %d", sets, a, class)
	}
}

// checkMembers fails if two classes have the same sets.
func (e encoded) checkMembers(t testing.TB) {
	t.Helper()
	seen := map[string]bool{}
	for _, sets := range e.Members {
		if key := fmt.Sprint(sets); seen[key] {
			t.Fatalf("two classes of sets %v", sets)
		} else {
			seen[key] = true
		}
		if !slices.IsSorted(sets) {
			t.Fatalf("sets %v are not sorted", sets)
		}
	}
	if len(e.Members[0]) != 0 {
		t.Fatalf("class 0 is in sets %v", e.Members[0])
	}
}

func checkTable(t *testing.T, r *rand.Rand, sets []naive) encoded {
	t.Helper()
	e := build(t, sets...)
	e.checkMembers(t)
	addresses := near(sets)
	for range 200 {
		addresses = append(addresses, randomAddr(r), addr4(r.Uint32()))
	}
	for _, a := range addresses {
		e.check(t, sets, a)
		e.checkFirstByte(t, sets, a)
	}
	return e
}

// checkFirstByte fails if an address has a class other than 0, but the table says that no address with its first byte
// does.
func (e encoded) checkFirstByte(t testing.TB, sets []naive, a netip.Addr) {
	t.Helper()
	if !a.Is4() || e.lookup(a) == 0 {
		return
	}
	first, list := a.As4()[0], e.V4.FirstBytes()
	if !slices.ContainsFunc(list, func(r [2]uint8) bool { return r[0] <= first && first <= r[1] }) {
		t.Fatalf("%v: %s has a class, but first bytes are %v", sets, a, list)
	}
	for i := range list[1:] {
		if int(list[i+1][0]) <= int(list[i][1])+1 {
			t.Fatalf("%v: first bytes %v do not ascend with gaps", sets, list)
		}
	}
}

// TestTableRandom tests small cases first, so that the first failure is easy to read.
func TestTableRandom(t *testing.T) {
	r := testutil.Random(t)
	for _, size := range []struct{ sets, entries, rounds int }{
		{1, 1, 20}, {1, 2, 20}, {2, 2, 20}, {2, 4, 30}, {3, 8, 30}, {5, 20, 20}, {70, 100, 5}, {20, 400, 3},
	} {
		for range size.rounds {
			checkTable(t, r, randomSets(r, size.sets, size.entries))
		}
	}
}

func TestTableShapes(t *testing.T) {
	r := testutil.Random(t)
	const (
		all4 = "0.0.0.0/0"
		all6 = "::/0"
	)
	for _, row := range []struct {
		name        string
		sets        []string
		lines, full int
	}{
		{"nothing", nil, 0, 0},
		{"empty sets", []string{"", ""}, 0, 0},
		{"everything", []string{all4 + " " + all6}, 0, 0},
		{"everything twice", []string{all4 + " " + all6, all4 + " " + all6}, 0, 0},
		{"halves", []string{"0.0.0.0/1 ::/1", "128.0.0.0/1 8000::/1"}, 0, 0},
		{"one /1", []string{"128.0.0.0/1 ::/1"}, 0, 0},
		{"all but one", []string{"0.0.0.0-192.0.2.0 192.0.2.2-255.255.255.255"}, 1, 0},
		{"all but the ends", []string{"0.0.0.1-255.255.255.254"}, 2, 0},
		{"a host", []string{"192.0.2.1"}, 0, 0},
		{"the first and last address", []string{"0.0.0.0 255.255.255.255 :: ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}, 0, 0},
		{"a /24 in an empty /16", []string{"192.0.2.0/24"}, 1, 0},
		{"a /24 missing in a /16", []string{"192.0.0.0-192.0.1.255 192.0.3.0-192.0.255.255"}, 1, 0},
		{"most of a /16", []string{"192.0.0.0/17 192.0.128.0/18"}, 64, 0},
		{"half of a /16", []string{"192.0.0.0/17"}, 128, 0},
		{"a /16", []string{"192.0.0.0/16"}, 0, 0},
		{"two classes in a full /24", []string{"192.0.2.0/24", "192.0.2.128/25"}, 1, 0},
		{"two classes and none", []string{"192.0.2.0/26", "192.0.2.128/25"}, 1, 1},
		{"three sets in a /24", []string{"192.0.2.0/24", "192.0.2.7", "192.0.2.9 192.0.2.200/29"}, 1, 1},
		{"three classes, a range beyond", []string{"192.0.1.7-192.0.3.9", "192.0.1.200", "192.0.3.3"}, 3, 2},
		{"hosts of a class around one of another", []string{"192.0.2.0-192.0.2.255", "192.0.2.100"}, 1, 0},
		{"nested prefixes", []string{all6, "2001::/16", "2001:db8::/32", "2001:db8::/64", "2001:db8::1"}, 0, 0},
		{"a set within another", []string{"2001:db8::/32 10.0.0.0/8", "2001:db8::/48 2001:db8:0:1:: 10.1.0.0/16 10.2.3.4"}, 1, 0},
		{"filter's reach", []string{"2001:d00::/20", "2002::/19"}, 0, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			var sets []naive
			for _, text := range row.sets {
				sets = append(sets, parse(t, strings.Fields(text)...))
			}
			e := checkTable(t, r, sets)
			if e.V4.Lines != row.lines || e.V4.FullBlocks != row.full {
				t.Errorf("%d lines, %d full blocks; want %d, %d", e.V4.Lines, e.V4.FullBlocks, row.lines, row.full)
			}
		})
	}
}

// TestTableEveryLength has a set for each prefix length. Each prefix is within the previous one. So a search passes as many classes as possible.
func TestTableEveryLength(t *testing.T) {
	a4, a6 := netip.MustParseAddr("192.0.2.165"), netip.MustParseAddr("2001:db8:a5a5:5a5a:a5a5:5a5a:a5a5:5a5a")
	var sets []naive
	for bits := range 129 {
		n := parse(t, netip.PrefixFrom(a6, bits).String())
		if bits <= 32 {
			n = append(n, parse(t, netip.PrefixFrom(a4, bits).String())...)
		}
		sets = append(sets, n)
	}
	e := checkTable(t, testutil.Random(t), sets)
	if len(e.V6.Lengths) != 129 || len(e.Members) != 1+129 {
		t.Errorf("%d lengths, %d classes", len(e.V6.Lengths), len(e.Members))
	}
}

// TestTableDense checks every address of a few dense /24s. This covers each bit of a line and each class of a full
// block.
func TestTableDense(t *testing.T) {
	r := testutil.Random(t)
	sets := make([]naive, 4)
	for range 300 {
		a := addr4(0xc0000200 + r.Uint32N(4)<<8 + r.Uint32N(256))
		i := r.IntN(len(sets))
		sets[i] = append(sets[i], parse(t, a.String())...)
	}
	e := build(t, sets...)
	for i := range uint32(6 * 256) {
		e.check(t, sets, addr4(0xc0000100+i))
	}
}

// TestFilterShift checks that the filter passes all blocks that have a class, and few others.
func TestFilterShift(t *testing.T) {
	r := testutil.Random(t)
	for _, row := range []struct{ blocks, want int }{
		{1000, 16}, {100_000, 12}, {1_000_000, 9}, {2_500_000, 8}, {5_000_000, 8},
	} {
		var table Table4
		step := uint32(1<<25/row.blocks - 1)
		for a := uint64(0); a < 1<<24; a += 1 + uint64(r.Uint32N(step)) {
			table.fill.add(run{uint32(a) << 8, uint32(a)<<8 | 0xff, 1})
		}
		if got := table.fill.shift(minShift); got != row.want {
			t.Errorf("%d blocks: shift %d, want %d", row.blocks, got, row.want)
		}
	}
}

// TestFilterFill checks that Encode sets as many bits in the filter as filterFill counted for the choice of the shift.
func TestFilterFill(t *testing.T) {
	r := testutil.Random(t)
	for range 4 {
		e := build(t, randomSets(r, 3, 100)...)
		for shift := minShift; shift <= maxShift; shift++ {
			e.V4.Shift = shift
			m := e.V4.NewMemory()
			if err := e.V4.Encode(m); err != nil {
				t.Fatal(err)
			}
			got := 0
			for i := 0; i < len(m.Filter); i += 8 {
				got += bits.OnesCount64(native.Uint64(m.Filter[i:]))
			}
			if want := e.V4.fill.blocks(shift); uint64(got) != want {
				t.Fatalf("shift %d: %d bits set, counted %d", shift, got, want)
			}
		}
	}
}

func TestBuildManySets(t *testing.T) {
	r := testutil.Random(t)
	sets := randomSets(r, 3000, 3000)
	sets[7] = append(sets[7], parse(t, "0.0.0.0/0")...)
	e := build(t, sets...)
	e.checkMembers(t)
	for range 100 {
		e.check(t, sets, randomAddr(r))
	}
}

// TestBuildTooManyClasses has 17 sets. Each contains the addresses in which one of 17 bits is set. So there are 2^17 combinations.
func TestBuildTooManyClasses(t *testing.T) {
	sets := make([]*Set, 17)
	for bit := range sets {
		var b Builder
		for i := range uint32(1 << 17) {
			if i>>bit&1 != 0 {
				b.v4 = append(b.v4, Range{i, i})
			}
		}
		sets[bit] = b.Set()
	}
	table, err := Build(sets[:15])
	if err != nil || len(table.Members) != 1<<15 {
		t.Errorf("%v", err)
	}
	_, err = Build(sets)
	want := "the 17 sets overlap in more than 65534 ways: use fewer sets, or sets that overlap less"
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestEncodeTooSmall(t *testing.T) {
	e := build(t, parse(t, "192.0.2.1", "2001:db8::/32"))
	m4, m6 := e.m4, e.m6
	m4.Hosts = nil
	m6.Buckets = nil
	for _, err := range []error{e.V4.Encode(m4), e.V6.Encode(m6)} {
		if err == nil || !strings.Contains(err.Error(), "has 0 bytes, the table needs 64") {
			t.Errorf("got %v", err)
		}
	}
}

// TestTable6Large tests a large table of prefixes with different lengths. A lookup must find every prefix, with the
// class of its sets.
func TestTable6Large(t *testing.T) {
	r := testutil.Random(t)
	sets := make([]*Set, 5)
	for i := range sets {
		var b Builder
		for range 20_000 {
			p := prefix6{0x2000<<48 | r.Uint64N(1<<30)<<20, r.Uint64() >> r.IntN(64), 128}
			b.v6 = append(b.v6, p.cut(uint8(20+r.IntN(109))))
		}
		sets[i] = b.Set()
	}
	table, err := Build(sets)
	if err != nil {
		t.Fatal(err)
	}
	e := encode(t, table)
	for _, s := range sets {
		for _, p := range s.v6 {
			a := p.netip().Addr()
			var want []int32
			for i := range sets {
				if sets[i].Contains(a) {
					want = append(want, int32(i))
				}
			}
			if got := e.Members[e.lookup(a)]; !slices.Equal(got, want) {
				t.Fatalf("%s: got sets %v, want %v", a, got, want)
			}
		}
	}
}

// TestRealList tests a real list. A second set has the entries on which three sources agree.
func TestRealList(t *testing.T) {
	const dir = "/work/shared/data/"
	if _, err := os.Stat(dir); err != nil {
		t.Skip("needs the lists in ", dir)
	}
	var sets []*Set
	for name, want := range map[string]int{"ipsum.txt": 120_000, "ipsum-level3.txt": 10_000} {
		set, entries, err := ReadFile(dir+name, 0)
		if err != nil || entries < want {
			t.Fatalf("%s: %d entries, %v", name, entries, err)
		}
		sets = append(sets, set)
	}
	table, err := Build(sets)
	if err != nil {
		t.Fatal(err)
	}
	e := encode(t, table)
	for i, s := range sets {
		for _, r := range s.v4 {
			if !slices.Contains(e.Members[e.lookup(addr4(r.First))], int32(i)) {
				t.Fatalf("%s is not in set %d", addr4(r.First), i)
			}
		}
	}
}

// TestTableOfManyRanges tests a table that is planned in several parts. Its long lists contain hosts and overlapping ranges of all lengths.
func TestTableOfManyRanges(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	r := rand.New(rand.NewPCG(15, 4))
	var builders [3]Builder
	var borders []uint32
	for range 60_000 {
		a := r.Uint32()
		builders[0].v4 = append(builders[0].v4, Range{a, a})
		first := r.Uint32()
		last := min(uint64(first)+r.Uint64N(1<<r.IntN(20)), math.MaxUint32)
		of := 1 + r.IntN(2)
		builders[of].v4 = append(builders[of].v4, Range{first, uint32(last)})
		borders = append(borders, a, a+1, first-1, first, uint32(last), uint32(last)+1, r.Uint32())
	}
	var sets []*Set
	for i := range builders {
		sets = append(sets, builders[i].Set())
	}
	table, err := Build(sets)
	if err != nil {
		t.Fatal(err)
	}
	if table.V4.Lines == 0 || table.V4.FullBlocks == 0 || !table.V4.HasBackground() || table.V4.Hosts.Count < 10_000 {
		t.Fatalf("%d lines, %d full blocks, background %t, %d hosts: all should occur",
			table.V4.Lines, table.V4.FullBlocks, table.V4.HasBackground(), table.V4.Hosts.Count)
	}
	e := encode(t, table)
	e.checkMembers(t)
	for _, n := range borders {
		a := addr4(n)
		var want []int32
		for i, s := range sets {
			if s.Contains(a) {
				want = append(want, int32(i))
			}
		}
		if got := e.Members[e.lookup(a)]; !slices.Equal(got, want) {
			t.Fatalf("%s has the class of sets %v, but is in %v", a, got, want)
		}
	}
}
