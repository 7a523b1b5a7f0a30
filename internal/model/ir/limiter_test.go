// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"fmt"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/model/packet"
)

const day = 24 * time.Hour

// from returns a packet of a length from an address.
func from(t testing.TB, address string, length int) *packet.Packet {
	t.Helper()
	dst := "1.1.1.1:53"
	if address[0] == '[' {
		dst = "[2606::1]:53"
	}
	pkt := decode(t, fmt.Sprintf("udp %s:4000 > %s len=%d", address, dst, length))
	return &pkt
}

// passed sends n packets from start on, at intervals of step, and returns the number of packets that pass.
func passed(l *Limiter, limit int, pkt *packet.Packet, start, step time.Duration, n int) (count int) {
	for i := range n {
		if !l.Over(limit, pkt, start+time.Duration(i)*step) {
			count++
		}
	}
	return count
}

// TestLimiterBurst checks that exactly the burst passes at once after a pause.
func TestLimiterBurst(t *testing.T) {
	for _, test := range []struct {
		limit  Limit
		length int
		want   int
	}{
		{Limit{Rate: 1, Per: day, Burst: 1}, 100, 1},
		{Limit{Rate: 1, Per: day, Burst: 5}, 100, 5},
		{Limit{Rate: 30, Per: time.Minute, Burst: 7}, 1500, 7},
		{Limit{Rate: 1000, Per: time.Second, Burst: 2000}, 100, 2000},
		{Limit{Rate: 10_000_000, Per: time.Second, Burst: 100_000}, 100, 100_000},
		{Limit{Rate: 1_000_000, Per: time.Second, Bits: true, Burst: 12_000}, 1500, 1},
		{Limit{Rate: 1_000_000, Per: time.Second, Bits: true, Burst: 120_000}, 1500, 10},
		{Limit{Rate: 1_000_000, Per: time.Second, Bits: true, Burst: 120_000}, 1501, 9},
		{Limit{Rate: 100_000_000_000, Per: time.Second, Bits: true, Burst: 12_000_000}, 100, 15_000},
	} {
		l := NewLimiter(&Program{Limits: []Limit{test.limit}})
		pkt := from(t, "8.8.8.8", test.length)
		for _, now := range []time.Duration{0, 30 * day} {
			if got := passed(l, 0, pkt, now, 0, test.want+1000); got != test.want {
				t.Errorf("%+v at %s: %d packets of %d bytes pass, want %d", test.limit, now, got, test.length, test.want)
			}
		}
	}
}

// TestLimiterRate sends packets at twice the rate. Exactly the burst and the packets that the rate allows must pass.
func TestLimiterRate(t *testing.T) {
	for _, test := range []struct {
		limit  Limit
		length int
		step   time.Duration // half of the time that the rate allows for a packet
		n      int
	}{
		{Limit{Rate: 1, Per: day, Burst: 5}, 100, 12 * time.Hour, 1000},
		{Limit{Rate: 30, Per: time.Minute, Burst: 30}, 100, time.Second, 10_000},
		{Limit{Rate: 1000, Per: time.Second, Burst: 1}, 100, 500 * time.Microsecond, 10_000},
		{Limit{Rate: 10_000_000, Per: time.Second, Burst: 10_000}, 100, 50, 100_000},
		{Limit{Rate: 8_000_000, Per: time.Second, Bits: true, Burst: 1_600_000}, 1000, 500 * time.Microsecond, 10_000},
	} {
		l := NewLimiter(&Program{Limits: []Limit{test.limit}})
		burst := int(test.limit.Burst)
		if test.limit.Bits {
			burst /= 8 * test.length
		}
		// Of the packets 0 to n-1, n-1 steps pay off (n-1)/2 packets.
		want := burst + (test.n-1)/2
		if got := passed(l, 0, from(t, "8.8.8.8", test.length), time.Hour, test.step, test.n); got != want {
			t.Errorf("%+v: %d of %d packets pass, want %d", test.limit, got, test.n, want)
		}
	}
}

// TestLimiterSteady sends packets at exactly the rate, all of which must pass. A packet that arrives a nanosecond earlier must not pass.
func TestLimiterSteady(t *testing.T) {
	for _, limit := range []Limit{
		{Rate: 1, Per: day, Burst: 1}, {Rate: 7, Per: time.Hour, Burst: 1}, {Rate: 3, Per: time.Second, Burst: 1},
		{Rate: 10_000_000, Per: time.Second, Burst: 1},
	} {
		l := NewLimiter(&Program{Limits: []Limit{limit}})
		pkt := from(t, "8.8.8.8", 100)
		// A packet takes Per/Rate, which may be no whole number of nanoseconds.
		step := (limit.Per + time.Duration(limit.Rate) - 1) / time.Duration(limit.Rate)
		for i := range time.Duration(1000) {
			early := i > 0 && !l.Over(0, pkt, i*step-1)
			if early || l.Over(0, pkt, i*step) {
				t.Fatalf("%+v: packet %d at %s: early %t", limit, i, i*step, early)
			}
		}
	}
}

// TestLimiterPrefixes checks which packets share a rate.
func TestLimiterPrefixes(t *testing.T) {
	src, dst := &Prefixes{24, 56}, &Prefixes{32, 64}
	for _, test := range []struct {
		name     string
		src, dst *Prefixes
		a, b     string
		together bool
	}{
		{"all", nil, nil, "udp 8.8.8.8:1 > 1.1.1.1:1", "udp [2606::1]:1 > [2606::2]:1", true},
		{"one /24", src, nil, "udp 8.8.8.0:1 > 1.1.1.1:1", "udp 8.8.8.255:1 > 2.2.2.2:1", true},
		{"two /24", src, nil, "udp 8.8.8.255:1 > 1.1.1.1:1", "udp 8.8.9.0:1 > 1.1.1.1:1", false},
		{"one /56", src, nil, "udp [2606::]:1 > [2606::2]:1", "udp [2606:0:0:ff::1]:1 > [2606::3]:1", true},
		{"two /56", src, nil, "udp [2606::]:1 > [2606::2]:1", "udp [2606:0:0:100::]:1 > [2606::2]:1", false},
		{"IPv4 and its mapped form", &Prefixes{0, 0}, nil, "udp 8.8.8.8:1 > 1.1.1.1:1", "udp [::ffff:8.8.8.8]:1 > [2606::2]:1", false},
		{"mapped IPv4 addresses", &Prefixes{0, 128}, nil, "udp [::ffff:8.8.8.8]:1 > [2606::2]:1", "udp [::ffff:8.8.8.9]:1 > [2606::2]:1", false},
		{"one destination", nil, dst, "udp 8.8.8.8:1 > 1.1.1.1:1", "tcp 9.9.9.9:1 > 1.1.1.1:2 S", true},
		{"two destinations", nil, dst, "udp 8.8.8.8:1 > 1.1.1.1:1", "udp 8.8.8.8:1 > 1.1.1.2:1", false},
		{"one pair", src, dst, "udp 8.8.8.8:1 > 1.1.1.1:1", "udp 8.8.8.9:1 > 1.1.1.1:1", true},
		{"another source", src, dst, "udp 8.8.8.8:1 > 1.1.1.1:1", "udp 8.8.9.8:1 > 1.1.1.1:1", false},
		{"another destination", src, dst, "udp 8.8.8.8:1 > 1.1.1.1:1", "udp 8.8.8.8:1 > 1.1.1.2:1", false},
	} {
		limit := Limit{Rate: 1, Per: day, Burst: 1, Src: test.src, Dst: test.dst}
		l := NewLimiter(&Program{Limits: []Limit{limit, limit}})
		a, b := decode(t, test.a), decode(t, test.b)
		if l.Over(0, &a, 0) || !l.Over(0, &a, 0) {
			t.Errorf("%s: the first packet, or not only it, is over", test.name)
		}
		if got := l.Over(0, &b, 0); got != test.together {
			t.Errorf("%s: together %t, want %t", test.name, got, test.together)
		}
		if l.Over(1, &a, 0) {
			t.Errorf("%s: another limit is charged as well", test.name)
		}
	}
}

// TestLimiterLayers tests three limits in one rule. If a packet exceeds a limit, it is charged to the limits before it, but not to that limit or
// later ones. A packet that exceeds no limit is charged to all.
func TestLimiterLayers(t *testing.T) {
	p := &Program{
		Default: Pass,
		Limits: []Limit{
			{Rate: 1, Per: day, Burst: 3, Src: &Prefixes{32, 64}},
			{Rate: 1, Per: day, Burst: 5, Src: &Prefixes{24, 64}},
			{Rate: 1, Per: day, Burst: 7, Src: &Prefixes{16, 64}},
		},
		Rules: []Rule{{Name: "layers", Over: []int{0, 1, 2}, Verdict: Drop}},
	}
	l := NewLimiter(p)
	for i, test := range []struct {
		from string
		want int // of ten packets
	}{
		{"8.8.8.8", 3},
		{"8.8.8.9", 2}, // of the /24's 5; it is charged all of its own 3
		{"8.8.8.10", 0},
		{"8.8.9.8", 2}, // of the /16's 7
		{"8.8.8.9", 0},
		{"8.8.10.1", 0},
		{"8.9.0.1", 3},
	} {
		got := 0
		for range 10 {
			verdict, _ := p.Eval(from(t, test.from, 100), World{Over: func(limit int, pkt *packet.Packet) bool {
				return l.Over(limit, pkt, 0)
			}})
			if verdict == Pass {
				got++
			}
		}
		if got != test.want {
			t.Errorf("%d: %d packets from %s pass, want %d", i, got, test.from, test.want)
		}
	}
}

// TestLimiterForgetsNothing checks that a debt lasts until it is paid off, even if that takes long.
func TestLimiterForgetsNothing(t *testing.T) {
	l := NewLimiter(&Program{Limits: []Limit{{Rate: 1, Per: day, Burst: 10_000}}})
	pkt := from(t, "8.8.8.8", 100)
	const years = 27 * 365 * day
	if got := passed(l, 0, pkt, years, 0, 20_000); got != 10_000 {
		t.Errorf("%d packets pass at once", got)
	}
	if got := passed(l, 0, pkt, years+1000*day, 0, 20_000); got != 1000 {
		t.Errorf("%d packets pass after 1000 days", got)
	}
	if got := passed(l, 0, pkt, years+11_000*day, 0, 20_000); got != 10_000 {
		t.Errorf("%d packets pass when all is paid off", got)
	}
}
