// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// TestKeys compares each test of the search with ir.Eval of the corresponding rule.
func TestKeys(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(16, 0))
	var hints packet.Hints
	hints.Addrs = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8::/64")}
	hints.Names, hints.Texts = []string{"a.evil.example", "evil.example"}, [][]byte{[]byte("a\"b|c\\d")}
	hints.Values[packet.DPort] = []uint32{packet.PortUDP + 53, 80}
	hints.Values[packet.DNS] = []uint32{1, 255}
	var samples []Sample
	for range 3000 {
		spec := packet.RandomSpec(r, hints)
		frame := spec.Frame()
		if s := NewSample(sample.Sample{Frame: frame, Length: len(frame)}); s.Kind == packet.IP && s.Failed == 0 { // packets that fail a check never reach the rules
			samples = append(samples, s)
		}
	}
	s := &search{attack: samples, total: len(samples)}
	all := fullBitset(len(samples))
	tests := s.candidates(all)
	for _, k := range kinds(samples, 1) {
		tests = append(tests, k.tests()...)
	}
	for _, fit := range []func(bitset) []test{s.fitPorts, s.fitDNS, s.fitLength, s.fitBytes, s.fitTTL, s.fitFrom, s.fitTo, s.fitFamily} {
		tests = append(tests, fit(all)...)
	}
	keys := map[string]int{}
	for _, one := range tests {
		keys[one.key]++
		c := s.with(s.all(), one)
		g, err := newSignature(c.match())
		if err != nil {
			t.Fatalf("%s: %v", one.text, err)
		}
		line := g.As("x", false).Line()
		if read, _, err := ReadSignature(line); err != nil || !read.Same(g) {
			t.Fatalf("%s is read as %+v, %v", line, read, err)
		}
		for i := range samples {
			if got := g.Has(&samples[i]); got != one.has(&samples[i]) {
				t.Fatalf("%s: Eval says %t of %+v", line, got, samples[i].Packet)
			}
		}
	}
	for _, key := range []string{"from", "to", "proto", "port", "sport", "flags", "icmp", "length", "ttl", "dscp", "fragment", "payload.at", "dns.type", "dns.name"} {
		if keys[key] == 0 {
			t.Errorf("key %s was not tried", key)
		}
	}
}

// TestShare compares intervals with those of R's binom::binom.wilson.
func TestShare(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		packets, of int
		low, high   string
	}{{0, 100, "0.0000", "0.0370"}, {50, 100, "0.4038", "0.5962"}, {100, 100, "0.9630", "1.0000"}, {3, 10, "0.1078", "0.6032"}, {0, 0, "0.0000", "1.0000"}} {
		s := share(row.packets, row.of)
		if low, high := fourDigits(s.Low), fourDigits(s.High); low != row.low || high != row.high {
			t.Errorf("%d of %d: %s to %s, want %s to %s", row.packets, row.of, low, high, row.low, row.high)
		}
	}
}

func fourDigits(v float64) string { return fmt.Sprintf("%.4f", v) }

// TestSampleKeeps compares samples of frames, including long ones, with the decoder's result. Only the end of long frames may be missing.
func TestSampleKeeps(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(17, 0))
	cut := 0
	for range 5000 {
		frame := packet.Random(r, packet.Hints{Names: []string{"evil.example"}})
		frame = append(frame, make([]byte, r.IntN(2)*r.IntN(60_000))...)
		want, got := packet.Decode(frame), NewSample(sample.Sample{Frame: frame, Length: len(frame)})
		if got.Value != want.Value || got.Src != want.Src || got.Failed != want.Failed || got.Query.Name() != want.Query.Name() {
			t.Fatalf("%x: %+v, want %+v", frame[:min(len(frame), 200)], got.Packet, want)
		}
		if cap(got.L4) > keptFrame {
			t.Fatalf("a sample of %d bytes keeps %d", len(frame), cap(got.L4))
		}
		for _, part := range [][2][]byte{{got.L4, want.L4}, {got.Payload, want.Payload}} {
			if len(part[0]) < len(part[1]) {
				cut++
			}
			if !bytes.HasPrefix(part[1], part[0]) || len(part[0]) < min(len(part[1]), 1100) || (part[0] == nil) != (part[1] == nil) {
				t.Fatalf("%d bytes are kept of %d", len(part[0]), len(part[1]))
			}
		}
		if got.seen != len(got.L4) {
			t.Fatalf("%d of %d bytes count as captured", got.seen, len(got.L4))
		}
	}
	if cut == 0 {
		t.Error("no frame was long: the test shows nothing")
	}
}
