// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
)

// list4 returns a list file of n random hosts.
func list4(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	var text []byte
	for range n {
		text = addr4(r.Uint32()).AppendTo(text)
		text = append(text, '\n')
	}
	return text
}

// list6 returns a list file of n random prefixes. They have the lengths that are common in blocklists, and lie in the
// assigned part of the address space.
func list6(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	lengths := []uint8{32, 44, 48, 56, 60, 64, 64, 64, 128, 128, 128, 128}
	var text []byte
	for range n {
		p := prefix6{0x2a00<<48 | r.Uint64()>>8, r.Uint64(), 128}
		text = p.cut(lengths[r.IntN(len(lengths))]).netip().AppendTo(text)
		text = append(text, '\n')
	}
	return text
}

func mustRead(t testing.TB, text []byte) *Set {
	t.Helper()
	set, _, err := Read(bytes.NewReader(text), "list", 0)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func BenchmarkRead(b *testing.B) {
	for name, text := range map[string][]byte{"v4": list4(1e6), "v6": list6(1e6)} {
		b.Run(name+"=1M", func(b *testing.B) {
			for b.Loop() {
				mustRead(b, text)
			}
		})
	}
}

func BenchmarkBuild(b *testing.B) {
	sets := map[string][]*Set{
		"v4=1M": {mustRead(b, list4(1e6))},
		"v6=1M": {mustRead(b, list6(1e6))},
	}
	sets["v4=1M,small=10k"] = append(sets["v4=1M"][:1:1], smallSets(10_000)...)
	for name, sets := range sets {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Build(sets); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func smallSets(n int) []*Set {
	r := rand.New(rand.NewPCG(3, 4))
	sets := make([]*Set, n)
	for i := range sets {
		var b Builder
		b.Add(netip.PrefixFrom(addr4(r.Uint32()), 24))
		b.Add(netip.PrefixFrom(addr4(r.Uint32()), 32))
		sets[i] = b.Set()
	}
	return sets
}

func BenchmarkEncode(b *testing.B) {
	t, err := Build([]*Set{mustRead(b, list4(1e6)), mustRead(b, list6(1e6))})
	if err != nil {
		b.Fatal(err)
	}
	// The memory is reused. With new memory, the benchmark would measure the kernel's page faults.
	m4, m6 := t.V4.NewMemory(), t.V6.NewMemory()
	b.Run("v4=1M", func(b *testing.B) {
		for b.Loop() {
			t.V4.Encode(m4)
		}
	})
	b.Run("v6=1M", func(b *testing.B) {
		for b.Loop() {
			t.V6.Encode(m6)
		}
	})
}

func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		set := mustRead(b, append(list4(n), list6(n)...))
		t, err := Build([]*Set{set})
		if err != nil {
			b.Fatal(err)
		}
		m4, m6 := t.V4.NewMemory(), t.V6.NewMemory()
		t.V4.Encode(m4)
		t.V6.Encode(m6)
		r := rand.New(rand.NewPCG(5, 6))
		b.Run(fmt.Sprint("v4=", n), func(b *testing.B) {
			for b.Loop() {
				t.V4.Lookup(m4, r.Uint32())
			}
		})
		b.Run(fmt.Sprint("v6=", n), func(b *testing.B) {
			for b.Loop() {
				t.V6.Lookup(m6, prefix6{0x2a00<<48 | r.Uint64()>>8, r.Uint64(), 128}.netip().Addr())
			}
		})
	}
}

func BenchmarkDynamicInsert(b *testing.B) {
	const n = 100_000
	m := NewDynamicMemory(1_000_000)
	if err := m.Format(1_000_000); err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(7, 8))
	b.ReportAllocs()
	for b.Loop() {
		s := openDynamic(b, m).Sets[0]
		for range n {
			p := netip.PrefixFrom(addr4(r.Uint32()), 32)
			if err := s.Insert(Entry{Prefix: p, Expiry: 100, Why: "bench"}, 99); err != nil {
				b.StopTimer()
				clear(m.Buckets)
				clear(m.Info[infoEntries:])
				b.StartTimer()
				break
			}
		}
	}
}
