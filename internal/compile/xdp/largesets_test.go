// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
)

// TestLargeSets tests three overlapping lists of tens of thousands of entries, with packets from and to their addresses and adjacent ones.
func TestLargeSets(t *testing.T) {
	t.Parallel()
	r, _ := subject.Seeded(t)
	w := &subject.Writer{Rand: r}
	hints := packet.Hints{}
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		var b strings.Builder
		for range 20_000 {
			if len(hints.Addrs) == 0 || !w.OneIn(5) {
				hints.Addrs = append(hints.Addrs, entry(w))
			}
			fmt.Fprintln(&b, subject.Choose(w, hints.Addrs[max(0, len(hints.Addrs)-30_000):]...))
		}
		if err := os.WriteFile(dir+"/"+name+".txt", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := subject.LowerFile(t, dir+"/policy.yaml", `
sets: {a: {file: a.txt}, b: {file: b.txt}, c: {file: c.txt}}
rules:
  - {name: all, from: $a, to: [$b, $c], then: drop}
  - {name: some, from: [$a, $b], not: {from: $c}, then: drop}
  - {name: one, from: $c, then: pass}
  - {name: other, to: $b, then: drop}
`)
	s.Agree(t, subject.RandomFrames(r, hints, 20_000))
}

// entry returns a random entry of a list. It makes every kind of entry that the tables store in a different way.
func entry(w *subject.Writer) netip.Prefix {
	v4 := [4]byte{byte(w.Uint32()), byte(w.Uint32()), byte(w.Uint32()), byte(w.Uint32())}
	v6 := [16]byte{0x20, 1, byte(w.Uint32N(4)), 0, byte(w.Uint32N(16)), byte(w.Uint32()), byte(w.Uint32N(2)), 7}
	for i := 8; i < 16; i++ {
		v6[i] = byte(w.Uint32())
	}
	switch w.IntN(8) {
	case 0: // many of one /24
		v4[0], v4[1], v4[2] = 66, 7, v4[2]&7
		return netip.PrefixFrom(netip.AddrFrom4(v4), 32)
	case 1:
		return netip.PrefixFrom(netip.AddrFrom4(v4), 16+w.IntN(17)).Masked()
	case 2:
		v4[0] = 100
		return netip.PrefixFrom(netip.AddrFrom4(v4), 24+w.IntN(9)).Masked()
	case 3:
		return netip.PrefixFrom(netip.AddrFrom16(v6), 28+w.IntN(101)).Masked()
	case 4:
		return netip.PrefixFrom(netip.AddrFrom16(v6), subject.Choose(w, 48, 64, 128)).Masked()
	}
	return netip.PrefixFrom(netip.AddrFrom4(v4), 32)
}
