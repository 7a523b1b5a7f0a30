// SPDX-License-Identifier: Apache-2.0

package sample_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// streams are sequences of keys: random ones, and ones that are difficult for a Counter with few places.
var streams = []struct {
	name string
	key  func(r *rand.Rand, i, places int) uint32
}{
	{"uniform", func(r *rand.Rand, _, _ int) uint32 { return r.Uint32N(5000) }},
	{"skewed", func(r *rand.Rand, _, _ int) uint32 { return uint32(math.Pow(2, 16*r.Float64()*r.Float64())) }},
	{"all new", func(_ *rand.Rand, i, _ int) uint32 { return uint32(i) }},
	{"one more key than places, in turn", func(_ *rand.Rand, i, places int) uint32 { return uint32(i % (places + 1)) }},
	{"new keys, then one", func(_ *rand.Rand, i, _ int) uint32 { return uint32(min(i, 9000)) }},
	{"one key among new ones", func(_ *rand.Rand, i, _ int) uint32 { return uint32(i % 50 * i) }},
}

// TestCounter compares counts with exact ones, within the bounds of the paper.
func TestCounter(t *testing.T) {
	t.Parallel()
	const n = 20_000
	for _, s := range streams {
		for _, places := range []int{1, 10, 100, 1000} {
			r, exact := testutil.Random(t), map[uint32]uint64{}
			c := sample.NewCounter[uint32](places)
			for i := range n {
				key := s.key(r, i, places)
				exact[key]++
				c.Add(key)
			}
			name := fmt.Sprintf("%s, %d places", s.name, places)
			compareCounts(t, name, c, exact, n/uint64(places))
		}
	}
}

func compareCounts(t *testing.T, name string, c *sample.Counter[uint32], exact map[uint32]uint64, bound uint64) {
	t.Helper()
	sum := uint64(0)
	for i, top := 0, c.Top(math.MaxInt); i < len(top); i++ {
		got, want := top[i], exact[top[i].Key]
		sum += got.Packets
		if got.Packets < want || got.Least() > want || got.Over > bound {
			t.Errorf("%s: key %d was counted %d, at most %d too much; it is %d, and the bound is %d", name, got.Key, got.Packets, got.Over, want, bound)
		}
		if i > 0 && top[i-1].Packets < got.Packets {
			t.Errorf("%s: not in order", name)
		}
	}
	if sum != c.Total() {
		t.Errorf("%s: the counts add up to %d, want %d", name, sum, c.Total())
	}
	for key, want := range exact {
		if got := c.Get(key); got.Packets < want || want > bound && got.Least() == 0 {
			t.Errorf("%s: key %d has count %d, at most %d too much; it is %d", name, key, got.Packets, got.Over, want)
		}
	}
}

// TestHierarchy compares the result with exact hierarchical heavy hitters, for both families.
func TestHierarchy(t *testing.T) {
	t.Parallel()
	const n, share = 30_000, 0.02
	r := testutil.Random(t)
	h := sample.NewHierarchy(200)
	var all []netip.Addr
	for range n {
		all = append(all, randomSource(r))
		h.Add(all[len(all)-1])
	}
	got := map[netip.Prefix]sample.Heavy{}
	heavy := h.Heavy(share)
	for _, e := range heavy {
		got[e.Key] = e
		if exact := within(all, e.Key); e.Packets < exact || e.Least() > exact {
			t.Errorf("%v has count %d, at most %d too much; it is %d", e.Key, e.Packets, e.Over, exact)
		}
	}
	for _, want := range []string{"198.51.100.7/32", "203.0.113.0/24", "100.64.0.0/16", "2001:db8::1/128", "2001:db8:1:2::/64", "2001:db8:5::/48"} {
		if _, ok := got[netip.MustParsePrefix(want)]; !ok {
			t.Errorf("%s is missing among %v", want, heavy)
		}
	}
	for _, no := range []string{"198.51.100.0/24", "198.51.0.0/16", "203.0.0.0/16", "2001:db8::/64", "2001:db8:1::/48"} {
		if e, ok := got[netip.MustParsePrefix(no)]; ok {
			t.Errorf("%+v is listed, though a longer prefix explains it", e)
		}
	}
	if len(heavy) > 12 {
		t.Errorf("%d heavy prefixes: %v", len(heavy), heavy)
	}
}

// randomSource returns a random source. One address, one /24 and one /16 (IPv6: /128, /64, /48) are frequent, the others are not.
func randomSource(r *rand.Rand) netip.Addr {
	word := func(prefix string, mask uint32) netip.Addr {
		a := netip.MustParseAddr(prefix).As16()
		binary.BigEndian.PutUint32(a[12:], binary.BigEndian.Uint32(a[12:])|r.Uint32()&mask)
		return netip.AddrFrom16(a).Unmap()
	}
	six := func(prefix string, at int) netip.Addr {
		a := netip.MustParseAddr(prefix).As16()
		for i := at; i < 16; i++ {
			a[i] = byte(r.Uint32())
		}
		return netip.AddrFrom16(a)
	}
	switch r.IntN(10) {
	case 0:
		return netip.MustParseAddr("198.51.100.7")
	case 1:
		return word("203.0.113.0", 0xff)
	case 2:
		return word("100.64.0.0", 0xffff)
	case 3:
		return netip.MustParseAddr("2001:db8::1")
	case 4:
		return six("2001:db8:1:2::", 8)
	case 5:
		return six("2001:db8:5::", 6)
	case 6:
		return six("::", 0)
	}
	return word("0.0.0.0", math.MaxUint32)
}

func within(all []netip.Addr, p netip.Prefix) (n uint64) {
	for _, a := range all {
		if p.Contains(a) {
			n++
		}
	}
	return n
}

// TestTalkers counts packets of all kinds, including packets without addresses.
func TestTalkers(t *testing.T) {
	t.Parallel()
	v := sample.NewTalkers()
	for _, line := range []string{
		"udp 198.51.100.7:53 > 192.0.2.1:1000 len=500 ttl=3",
		"udp 198.51.100.8:53 > 192.0.2.1:2000 len=500 ttl=3",
		"tcp [2001:db8::1]:1234 > [2001:db8::2]:80 S len=100", "arp",
	} {
		s, err := packet.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		p := packet.Decode(s.Frame())
		v.Add(&p)
	}
	if v.Packets != 3 || v.Bytes != 1100 {
		t.Errorf("%d packets of %d bytes, want 3 of 1100", v.Packets, v.Bytes)
	}
	for field, want := range map[packet.Field]sample.Count[uint32]{
		packet.SPort: {Key: packet.PortUDP + 53, Packets: 2}, packet.Proto: {Key: packet.ProtoUDP, Packets: 2},
		packet.Length: {Key: 500, Packets: 2}, packet.TTL: {Key: 3, Packets: 2}, packet.Flags: {Key: packet.FlagsNone, Packets: 2},
	} {
		if got := v.Top(field, 1); len(got) != 1 || got[0] != want {
			t.Errorf("%v: %v, want %v", field, got, want)
		}
	}
	if got := v.To.Heavy(0.5); len(got) != 1 || got[0].Key.String() != "192.0.2.1/32" || got[0].Packets != 2 {
		t.Errorf("destinations: %v", got)
	}
}

// TestSamplingError draws samples of a known share, and counts how often the error is within the bound: that must be in about 95%.
func TestSamplingError(t *testing.T) {
	t.Parallel()
	r := testutil.Random(t)
	const trials, packets, oneIn = 400, 40_000, 100
	within := 0
	for range trials {
		samples := uint64(0)
		for range packets {
			if r.IntN(oneIn) == 0 {
				samples++
			}
		}
		off := math.Abs(float64(samples)*oneIn-packets) / (float64(samples) * oneIn) * 100
		if off <= sample.SamplingError(samples) {
			within++
		}
	}
	if within < trials*90/100 {
		t.Errorf("the error is within the bound in %d of %d trials, want 95%%", within, trials)
	}
	if !math.IsInf(sample.SamplingError(0), 1) {
		t.Error("no samples, and an error that is not infinite")
	}
}
