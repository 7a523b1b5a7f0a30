// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/test/testutil"
)

// TestTableHosts checks that the listed addresses of a /24 are in the hash if they are few, and in a line if they are many.
func TestTableHosts(t *testing.T) {
	for _, row := range []struct {
		name         string
		sets         []string
		lines, hosts int
	}{
		{"one", []string{"192.0.2.1"}, 0, 1},
		{"the first and the last of all", []string{"0.0.0.0 255.255.255.255"}, 0, 2},
		{"six", []string{"192.0.2.1 192.0.2.3 192.0.2.5 192.0.2.128/31 192.0.2.255"}, 0, 6},
		{"seven", []string{"192.0.2.1 192.0.2.3 192.0.2.5 192.0.2.128/30"}, 1, 0},
		{"of three classes", []string{"192.0.2.1 192.0.2.2", "192.0.2.2 192.0.2.3"}, 0, 3},
		{"across two /24s", []string{"192.0.1.254-192.0.2.1"}, 0, 4},
		{"beside a uniform /24", []string{"192.0.2.0/24 192.0.3.9"}, 1, 1},
		{"beside a line", []string{"192.0.2.0/25 192.0.3.9"}, 1, 1},
		{"over a background", []string{"10.0.0.0/16", "10.0.2.1"}, 1, 0},
		{"over a background, three classes", []string{"10.0.0.0/16", "10.0.2.1 10.0.2.2", "10.0.2.2"}, 1, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := testutil.Random(t)
			var sets []naive
			for _, text := range row.sets {
				sets = append(sets, parse(t, strings.Fields(text)...))
			}
			e := checkTable(t, r, sets)
			if e.V4.Lines != row.lines || e.V4.Hosts.Count != row.hosts {
				t.Errorf("%d lines, %d hosts; want %d, %d", e.V4.Lines, e.V4.Hosts.Count, row.lines, row.hosts)
			}
		})
	}
}

// distinctHosts returns n different random hosts with the given number of classes.
func distinctHosts(r *rand.Rand, n, classes int) []host {
	all := make([]host, n)
	order := Hosts4{Key: r.Uint32(), Factor: r.Uint32() | 1} // different addresses have different numbers
	from, step := r.Uint32(), r.Uint32()|1
	for i := range all {
		all[i] = host{order.number(from + uint32(i)*step), uint16(1 + r.IntN(classes))}
	}
	return all
}

// encodeHosts writes a planned hash to new memory.
func encodeHosts(h *Hosts4, list []host) hostMemory {
	t := Table4{Hosts: *h}
	m := t.NewMemory()
	h.encode(m.hosts(), list)
	return m.hosts()
}

// address returns the address that has a host number. It is the inverse of the method number.
func (h *Hosts4) address(number uint32) uint32 {
	number *= inverse(0x2c1b3c6d)
	number ^= number >> 16
	return number*inverse(h.Factor) ^ h.Key
}

// inverse returns the inverse of an odd number modulo 2^32. It uses Newton's method: each step doubles the number of
// correct bits.
func inverse(odd uint32) uint32 {
	x := odd
	for range 5 {
		x *= 2 - odd*x
	}
	return x
}

// TestHostNumbers checks that no two addresses have the same number.
func TestHostNumbers(t *testing.T) {
	r := testutil.Random(t)
	for range 10_000 {
		h := Hosts4{Key: r.Uint32(), Factor: r.Uint32() | 1}
		if a := r.Uint32(); h.address(h.number(a)) != a {
			t.Fatalf("%+v: the number of %s is that of %s", h, addr4(a), addr4(h.address(h.number(a))))
		}
	}
}

// found returns all hosts in the memory, with their classes.
func (h *Hosts4) found(m hostMemory) map[uint32]uint16 {
	all := map[uint32]uint16{}
	for i := range h.Narrow {
		first := (uint64(i)<<32 + uint64(h.Narrow) - 1) / uint64(h.Narrow)
		for slot := range narrowSlots {
			line := m.lines[i*HostLineBytes:]
			rest := native.Uint64(line[56:]) >> (slot/4 + slot%4*16)
			low := uint32(native.Uint16(line[2*slot:])) | uint32(rest&1)<<16 | uint32(rest>>7&1)<<17
			number := uint32(first) + (low-uint32(first))&(1<<18-1)
			if share(number, h.Narrow) == i {
				all[h.address(number)] = h.classAt(m, i, slot)
			}
		}
	}
	for i := h.Narrow; i < h.Lines(); i++ {
		for slot := range WideSlots {
			line := m.lines[i*HostLineBytes:][:HostLineBytes]
			if class := native.Uint16(line[WideClassAt+2*slot:]); class != 0 {
				all[h.address(native.Uint32(line[4*slot:]))] = class
			}
		}
	}
	return all
}

// checkHosts checks that the lines have exactly the hosts of the list, and that lookups find exactly these.
func checkHosts(t *testing.T, r *rand.Rand, h *Hosts4, list []host) {
	t.Helper()
	m := encodeHosts(h, list)
	want := map[uint32]uint16{}
	for _, l := range list {
		want[l.addr] = l.class
	}
	if got := h.found(m); !maps.Equal(got, want) {
		t.Fatalf("%d hosts stand in %d narrow and %d wide lines, not the %d listed", len(got), h.Narrow, h.Wide, len(want))
	}
	check := func(a uint32) {
		if got := h.lookup(m, a); got != want[a] {
			t.Fatalf("%s has class %d of %d narrow and %d wide lines, want %d", addr4(a), got, h.Narrow, h.Wide, want[a])
		}
	}
	for _, l := range list {
		check(l.addr)
		check(l.addr ^ 1<<r.IntN(32))
		n := h.number(l.addr)
		check(h.address(n ^ 1<<18)) // the lower 18 bits are the same
		check(h.address(n ^ 1<<16))
		check(h.address(n ^ 1<<17))
		check(h.address(n + 1))
	}
	for range 100_000 {
		check(r.Uint32())
	}
}

// TestHosts checks lists of all sizes. Few hosts are in wide lines; many are in narrow lines, some of which overflow into
// wide ones.
func TestHosts(t *testing.T) {
	r := testutil.Random(t)
	sizes := []int{1, 2, 10, 1000, 100_000, maxWide + 1, 400_000}
	if testutil.Long() {
		sizes = append(sizes, 1_000_000, 3_000_000, 10_000_000)
	}
	for _, n := range sizes {
		for _, classes := range []int{1, 3} {
			list := distinctHosts(r, n, classes)
			h := &Hosts4{Count: n}
			h.plan(list, true)
			checkHosts(t, r, h, list)
			if got := float64(h.Lines()*HostLineBytes+h.FilterBytes()) / float64(n); n > fewHosts && got > 14 { // 12.7, but more if the first keys failed
				t.Errorf("%d hosts take %.1f bytes each", n, got)
			}
		}
	}
}

// TestPerfectLines checks that most wide lines have a perfect hash, so that few lookups must search all slots.
func TestPerfectLines(t *testing.T) {
	const hosts, most = 100_000, 0.1
	h := &Hosts4{Count: hosts}
	list := distinctHosts(testutil.Random(t), hosts, 2)
	h.plan(list, false)
	m, scanned := encodeHosts(h, list), 0
	for i := range h.Wide {
		if native.Uint32(m.lines[i*HostLineBytes+WideFactorAt:])&wideScan != 0 {
			scanned++
		}
	}
	t.Logf("%d of %d lines have none", scanned, h.Wide)
	if got := float64(scanned) / float64(h.Wide); got > most || scanned == 0 {
		t.Errorf("%.3f of all lines have no perfect hash, want some, and at most %.3f", got, most)
	}
}

// TestHostsOfOneLine lists all addresses that belong to one line of each form, as an attacker who knows the key could do.
func TestHostsOfOneLine(t *testing.T) {
	r := testutil.Random(t)
	h := &Hosts4{Narrow: minNarrow, Key: r.Uint32(), Factor: r.Uint32() | 1, Filter: 64}
	var narrow, wide []host
	for n := uint32(0); share(n, h.Narrow) == 0; n++ {
		narrow = append(narrow, host{h.address(n), uint16(1 + n%2)})
	}
	if !h.fits(narrow, wideLoad) || h.Wide == 0 {
		t.Fatalf("%d hosts of one line do not fit: %d wide lines", len(narrow), h.Wide)
	}
	checkHosts(t, r, h, narrow)

	h = &Hosts4{Key: h.Key, Factor: h.Factor, Filter: 64}
	for n := range uint32(hostProbes*WideSlots + 1) {
		wide = append(wide, host{h.address(n * inverse(0x9e3779b1)), 1})
	}
	if !h.fits(wide[:len(wide)-1], 0.1) {
		t.Error("as many hosts as all lines within reach have slots do not fit")
	}
	checkHosts(t, r, h, wide[:len(wide)-1])
	if h.fits(wide, 0.1) {
		t.Error("more hosts fit than all lines within reach have slots")
	}
	h.Count = len(wide)
	h.plan(wide, true) // with another key
	checkHosts(t, r, h, wide)
}

// TestHostsInRows lists addresses at regular distances. They must be distributed over the lines as evenly as random addresses.
func TestHostsInRows(t *testing.T) {
	r := testutil.Random(t)
	for _, step := range []uint32{1, 2, 64, 256, 1 << 12} {
		list := make([]host, 1_000_000)
		for i := range list {
			list[i] = host{uint32(i)*step + uint32(i)*step>>16>>16, 1}
		}
		for range testutil.Scaled(1, 100) {
			h := &Hosts4{Narrow: len(list) / narrowLoad * 7 / 4, // half of the slots are used
				Key: r.Uint32(), Factor: r.Uint32() | 1}
			h.fits(list, wideLoad)
			if n := h.Wide * wideLoad; n > 1000 {
				t.Errorf("step %d, %+v: %d of %d hosts are in wide lines", step, h, n, len(list))
			}
		}
	}
}

// TestHostFilter checks how many lookups the filter avoids.
func TestHostFilter(t *testing.T) {
	r := testutil.Random(t)
	for _, row := range []struct {
		n    int
		most float64
	}{{1000, 0.025}, {100_000, 0.025}, {1_000_000, 0.07}} {
		h := &Hosts4{Count: row.n}
		list := distinctHosts(r, row.n, 1)
		h.plan(list, true)
		m, passed := encodeHosts(h, list), 0
		const asked = 100_000
		for range asked {
			if i, mask := h.filterMask(h.number(r.Uint32())); native.Uint64(m.filter[8*i:])&mask == mask {
				passed++
			}
		}
		t.Logf("%d hosts: %.4f pass", row.n, float64(passed)/asked)
		if got := float64(passed) / asked; got > row.most {
			t.Errorf("%d hosts: %.3f of all addresses pass the filter, at most %.3f may", row.n, got, row.most)
		}
	}
}
