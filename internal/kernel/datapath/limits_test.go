// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// withLimits returns an image that has only the maps of two limits. The first limit has one bucket with four debts: one that has just been paid, two
// that have not, and one that was paid long ago. The second limit has two buckets: one with a debt, and one whose words are from before the last
// wraparound.
func withLimits(t *testing.T) *image.Image {
	im := returning(
		asm.LoadMapPtr(asm.R1, 0).WithReference(image.LimitInfos),
		asm.LoadMapPtr(asm.R1, 0).WithReference(image.Limits),
		asm.LoadMapPtr(asm.R1, 0).WithReference(image.Evictions),
		asm.LoadImm(asm.R0, int64(image.Decision(70, 1)), asm.DWord),
	)
	im.Shapes = map[string]image.Shape{
		image.LimitInfos: {ValueSize: image.LimitInfoSize, Entries: 2},
		image.Limits:     {ValueSize: image.LimitBucketSize, Entries: 3},
		image.Evictions:  {ValueSize: 8, Entries: 2},
	}
	im.Fill = func(memory map[string][]byte) error {
		fast := image.LimitInfo{Left: 1, Fresh: uint64(time.Minute)} // longer than the test takes on a busy machine
		slow := image.LimitInfo{Right: 10, Fresh: uint64(time.Minute), Base: 1, Mask: 1}
		writeBucket(t, memory[image.Limits], &fast, 0, -time.Millisecond, 120*time.Second, 125*time.Second, -30*time.Second)
		writeBucket(t, memory[image.Limits][64:], &slow, 0, time.Hour)
		writeBucket(t, memory[image.Limits][128:], &slow, time.Hour, time.Minute)
		if err := fast.Marshal(memory[image.LimitInfos]); err != nil {
			return err
		}
		return slow.Marshal(memory[image.LimitInfos][image.LimitInfoSize:])
	}
	return im
}

// writeBucket writes debts into a bucket. Each debt is paid after its duration from now. The time since the last sweep of the bucket is swept.
func writeBucket(t *testing.T, bucket []byte, l *image.LimitInfo, swept time.Duration, debts ...time.Duration) {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	now := time.Duration(ts.Nano())
	for i, debt := range debts {
		word := uint64(i+1)<<40 | l.Units(uint64(now+debt))&(1<<40-1)
		binary.NativeEndian.PutUint64(bucket[8*(i+1):], word)
	}
	binary.NativeEndian.PutUint64(bucket[8*image.LimitSlots:], uint64(now-swept))
}

// TestLimits reads the tables of limits of a program, and of a running generation.
func TestLimits(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	testutil.Veth(t, "fw0", "fw1")
	s := locked(t)
	p := loadInside(t, withLimits(t))
	evict(t, p)
	if _, err := s.Install(p, []byte("manifest"), on("fw0"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	running, err := s.Running()
	if err != nil {
		t.Fatal(err)
	}
	defer datapath.CloseAll(running)
	want := []datapath.LimitStatus{{Debts: 2, Capacity: 3}, {Debts: 1, Capacity: 6, Evictions: 30}}
	for name, read := range map[string]func() ([]datapath.LimitStatus, error){"program": p.Limits, "generation": running[0].Limits} {
		if got, err := read(); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
	}
}

// evict counts 30 evictions of the second limit, on all CPUs together.
func evict(t *testing.T, p *datapath.Program) {
	t.Helper()
	var perCPU []uint64
	m := p.Map(image.Evictions)
	if err := m.Lookup(uint32(1), &perCPU); err != nil {
		t.Fatal(err)
	}
	perCPU[0] = 10
	perCPU[len(perCPU)-1] += 20
	if err := m.Update(uint32(1), perCPU, 0); err != nil {
		t.Fatal(err)
	}
}

// TestNoLimits reads the limits of a generation that has none.
func TestNoLimits(t *testing.T) {
	if got, err := load(t, always(70, 1)).Limits(); err != nil || got != nil {
		t.Errorf("limits are %+v, %v", got, err)
	}
}
