// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/subject"
)

// A flood is a series of packets from random sources that are charged to a limit.
type flood struct {
	*rand.Rand
	*limited
	run   *ebpf.RunOptions
	first uint32 // the first source address
	over  int
}

// Offsets of the time and the answer in struct question, and the offset of the source in the IPv4 packet after it.
const (
	questionNow      = 8
	questionDecision = 16
	questionSource   = 24 + 14 + 12
)

func (l *limited) flood(t *testing.T, r *rand.Rand) *flood {
	t.Helper()
	run := question(limitFrame(t, 0, "11.0.0.0", "192.0.2.1", 60), 0, 1)
	return &flood{Rand: r, limited: l, run: run, first: 11 << 24}
}

// send sends a packet of a random source outside 10.0.0.0/8.
func (f *flood) send(t *testing.T, now time.Duration) {
	t.Helper()
	binary.BigEndian.PutUint32(f.run.Data[questionSource:], f.first+f.Uint32N(1<<31))
	binary.NativeEndian.PutUint64(f.run.Data[questionNow:], uint64(now))
	if _, err := f.Native().Run(f.run); err != nil {
		t.Fatal(err)
	}
	if ir.Verdict(binary.NativeEndian.Uint32(f.run.DataOut[questionDecision:])&0xf) == ir.Drop {
		f.over++
	}
}

// floodSize returns the number of packets of a flood.
func floodSize() int {
	if os.Getenv("FLOODWALL_LONG") != "" {
		return 10_000_000
	}
	return 300_000
}

// offenders sends packets of forty sources during a flood of ten million random sources per second. Twenty sources send a burst and then ten times
// the rate. They must get the rate and no more. Twenty sources send half the rate. None of their packets may be dropped.
func (f *flood) offenders(t *testing.T, rate int) *audit {
	t.Helper()
	a := f.audit(t, 0)
	var frames [2][][]byte
	for kind := range frames {
		for i := range 20 {
			src := netip.AddrFrom4([4]byte{10, 0, byte(kind), byte(i)})
			frames[kind] = append(frames[kind], from(limitFrame(t, 0, "10.0.0.0", "192.0.2.1", 60), src))
		}
	}
	now, lost := time.Hour, 0
	for range 20_000 { // offenders start during the flood
		now += 100
		f.send(t, now)
	}
	for range f.program.Limits[0].Burst {
		for _, frame := range frames[0] {
			a.send(t, frame, now)
		}
	}
	turn := func(of, each int, do func(frame []byte), frames [][]byte) {
		if of%each == 0 {
			do(frames[of/each%len(frames)])
		}
	}
	for i := range floodSize() {
		now += 100
		f.send(t, now)
		turn(i, 10_000_000/(10*20*rate), func(frame []byte) { a.send(t, frame, now) }, frames[0])
		turn(i, 2*10_000_000/(20*rate), func(frame []byte) {
			if !a.send(t, frame, now) {
				lost++
			}
		}, frames[1])
	}
	if lost > 0 {
		t.Errorf("%d packets were lost of sources that keep to half the rate", lost)
	}
	a.check(t, 0.98)
	return a
}

// TestLimitFlood floods a limit with so many sources that most of them are not worth storing. The table is designed for that.
func TestLimitFlood(t *testing.T) {
	const rate = 1000
	r, _ := subject.Seeded(t)
	l := loadLimits(t, ir.Limit{Rate: rate, Per: time.Second, Burst: 50, Src: &ir.Prefixes{V4: 32, V6: 64}})
	f := l.flood(t, r)
	f.offenders(t, rate)
	s := l.status(t)
	t.Logf("%d packets of random sources: %d over the limit, %d debts forgiven", floodSize(), f.over, s.Evictions)
	if f.over > 5+floodSize()/10_000 {
		t.Errorf("%d of %d sources that send one packet are over the limit", f.over, floodSize())
	}
	if s.Evictions > uint64(floodSize()/40) {
		t.Errorf("%d debts were forgiven in a table for %d, which one packet in 40 may cause", s.Evictions, s.Capacity)
	}
}

// TestLimitOverflow floods a table that is much too small. The table must drop debts of the flood, but not those of the offenders.
func TestLimitOverflow(t *testing.T) {
	const rate = 1000
	r, _ := subject.Seeded(t)
	l := loadLimits(t, ir.Limit{Rate: rate, Per: time.Second, Burst: 50, Src: &ir.Prefixes{V4: 32, V6: 64}, Max: 1000})
	f := l.flood(t, r)
	f.offenders(t, rate)
	if s := l.status(t); s.Evictions < uint64(floodSize()/2) {
		t.Errorf("%d debts were forgiven in a table for %d: the flood was too small to tell", s.Evictions, s.Capacity)
	}
}

func (l *limited) status(t *testing.T) datapath.LimitStatus {
	t.Helper()
	all, err := l.Limits()
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

// TestLimitHolds adds as many prefixes of each kind to a table as the table is configured for. The prefixes are consecutive, like those of a sender
// with a network of its own. Nearly all must find a place. Each must have its own debt. While there is space, none may be removed.
func TestLimitHolds(t *testing.T) {
	const n = 12_000 // of 4096 buckets
	for _, test := range []struct {
		name     string
		src, dst *ir.Prefixes
		frame    func(i int) []byte
	}{
		{"hosts", &ir.Prefixes{V4: 32, V6: 64}, nil, func(i int) []byte {
			return from(limitFrame(t, 0, "10.0.0.0", "192.0.2.1", 60), host(i))
		}},
		{"networks", &ir.Prefixes{V4: 20, V6: 64}, nil, func(i int) []byte {
			return from(limitFrame(t, 0, "10.0.0.0", "192.0.2.1", 60), netip.AddrFrom4([4]byte{byte(i >> 12), byte(i >> 4), byte(i << 4), 1}))
		}},
		{"IPv6 networks", &ir.Prefixes{V4: 32, V6: 64}, nil, func(i int) []byte {
			return from(limitFrame(t, 0, "2001:db8::", "2001:db8::1", 60), netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 6: byte(i >> 8), 7: byte(i), 15: 1}))
		}},
		{"IPv6 hosts", &ir.Prefixes{V4: 32, V6: 128}, nil, func(i int) []byte {
			return from(limitFrame(t, 0, "2001:db8::", "2001:db8::1", 60), netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 14: byte(i >> 8), 15: byte(i)}))
		}},
		{"pairs", &ir.Prefixes{V4: 32, V6: 64}, &ir.Prefixes{V4: 32, V6: 64}, func(i int) []byte {
			frame := from(limitFrame(t, 0, "10.0.0.0", "192.0.2.0", 60), host(i/128))
			frame[14+19] = byte(i % 128)
			return frame
		}},
	} {
		l := loadLimits(t, ir.Limit{Rate: 1, Per: time.Minute, Burst: 1000, Src: test.src, Dst: test.dst, Max: n})
		now := monotonic(t)
		over := 0
		for i := range n {
			if l.over(t, test.frame(i), now) {
				over++
			}
		}
		s := l.status(t)
		t.Logf("%s: %+v", test.name, s)
		if known := s.Debts + int(s.Evictions); over > 0 || s.Evictions > n/100 || known < n-2 || known > n {
			t.Errorf("%s: of %d prefixes %d are over the limit with their first packet, %d are held, %d forgiven", test.name, n, over, s.Debts, s.Evictions)
		}
	}
}

// monotonic returns the current time of the clock of limits.
func monotonic(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}
