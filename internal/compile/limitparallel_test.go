package compile_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/xdp"
)

// onEachCPU runs fn on a thread for each of two CPUs at once.
func onEachCPU(t *testing.T, fn func(cpu int) error) {
	t.Helper()
	if runtime.NumCPU() < 2 {
		t.Fatal("this takes two CPUs")
	}
	var wg sync.WaitGroup
	for cpu := range 2 {
		wg.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread, with its CPU, ends with the goroutine
			var set unix.CPUSet
			set.Set(cpu)
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				t.Errorf("pin to CPU %d: %v", cpu, err)
				return
			}
			if err := fn(cpu); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// TestLimitParallel has two CPUs send real packets, no questions, as fast as they can: of one source, and of one each. What
// passes is the burst and the rate of the time that it took.
func TestLimitParallel(t *testing.T) {
	const rate, burst, packets = 200_000, 1000, 4_000_000
	for name, sources := range map[string][2]string{"one source": {"10.1.2.3", "10.1.2.3"}, "two sources": {"10.1.2.3", "10.1.2.4"}} {
		l := loadLimits(t, ir.Limit{Rate: rate, Per: time.Second, Burst: burst, Src: &ir.Prefixes{V4: 32, V6: 64}})
		start := monotonic(t)
		onEachCPU(t, func(cpu int) error {
			options := ebpf.RunOptions{Data: limitFrame(t, 0, sources[cpu], "192.0.2.1", 60), Repeat: packets}
			_, err := l.Native().Run(&options)
			return err
		})
		took := monotonic(t) - start
		counters, err := l.Counters()
		if err != nil {
			t.Fatal(err)
		}
		prefixes := 1.0
		if sources[0] != sources[1] {
			prefixes = 2
		}
		passed, over := counters[xdp.SlotDefault].Packets, counters[xdp.SlotRules].Packets
		t.Logf("%s: %d passed, %d over the limit in %v", name, passed, over, took)
		if passed+over < 2*packets {
			t.Errorf("%s: %d packets were counted, want %d", name, passed+over, 2*packets)
		}
		if most := prefixes * (burst + 1 + rate*took.Seconds()); float64(passed) > most {
			t.Errorf("%s: %d packets passed, at most %.0f may", name, passed, most)
		}
	}
}

// TestLimitBurst has two CPUs send more than the burst of a source that was not known before. A limit of so many packets
// a day does not depend on the time that the test takes: the burst passes, and no more but for one packet of a CPU that
// did not know yet that the other had made the source known.
func TestLimitBurst(t *testing.T) {
	const burst, rounds = 60, 400
	l := loadLimits(t, ir.Limit{Rate: 1, Per: day, Burst: burst, Src: &ir.Prefixes{V4: 32, V6: 64}, Max: 30 * rounds})
	frame := limitFrame(t, 0, "10.0.0.0", "192.0.2.1", 60)
	before, more := uint64(0), uint64(0)
	for round := range rounds {
		frame := from(frame, netip.AddrFrom4([4]byte{10, 0, byte(round >> 8), byte(round)}))
		var start meeting
		onEachCPU(t, func(int) error {
			start.wait(1)
			_, err := l.Native().Run(&ebpf.RunOptions{Data: frame, Repeat: burst})
			return err
		})
		counters, err := l.Counters()
		if err != nil {
			t.Fatal(err)
		}
		passed := counters[xdp.SlotDefault].Packets - before
		before += passed
		if passed < burst || passed > burst+1 {
			t.Errorf("round %d: %d packets passed, want %d", round, passed, burst)
		}
		more += passed - burst
	}
	t.Logf("%d packets more than should have passed in %d bursts", more, rounds)
}

// TestLimitRaces has two CPUs charge six prefixes of one bucket, which has seven slots, at the same injected time: again
// and again after pauses in which the words wrap around, so that both sweep. Each charge must be known afterwards.
func TestLimitRaces(t *testing.T) {
	const rounds, burst, each = 1500, 60, 20
	limit := ir.Limit{Rate: 10_000_000, Per: time.Second, Burst: burst, Src: &ir.Prefixes{V4: 32, V6: 64}, Max: 1}
	l := loadLimits(t, limit)
	now := func(round int) time.Duration {
		return time.Hour + time.Duration(round)*1_373_000_000 // a third of the time in which words wrap around
	}
	var frames [6][]byte
	for i := range frames {
		frames[i] = from(limitFrame(t, 0, "10.0.0.0", "192.0.2.1", 60), netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))
	}
	var start, end meeting
	more := 0
	onEachCPU(t, func(cpu int) error {
		for round := range rounds {
			start.wait(round + 1)
			for i := range frames {
				if _, err := l.Native().Run(question(frames[i], now(round), each)); err != nil {
					return fmt.Errorf("round %d: %w", round, err)
				}
			}
			end.wait(round + 1)
			if cpu == 0 {
				more += l.left(t, frames[:], now(round), burst-2*each)
			}
		}
		return nil
	})
	t.Logf("%d packets more than should have passed in %d bursts", more, rounds*len(frames))
}

// left sends what should be left of the burst of each source, and returns how much more it is.
func (l *limited) left(t *testing.T, frames [][]byte, now time.Duration, want int) (more int) {
	for i, frame := range frames {
		passed := 0
		for !l.over(t, frame, now) {
			passed++
		}
		if passed < want || passed > want+1 {
			t.Errorf("%v: %d packets are left of the burst of source %d, want %d", now, passed, i, want)
		}
		more += passed - want
	}
	return more
}

// A meeting lets two threads go on at the same moment, again and again.
type meeting struct{ arrived atomic.Int64 }

// wait waits for the other thread, the n-th time from 1 on.
func (m *meeting) wait(n int) {
	m.arrived.Add(1)
	for m.arrived.Load() < int64(2*n) {
		runtime.Gosched()
	}
}
