// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// onTwoCPUs repeats rounds for a second, or for a minute in long runs. In each round, it calls fn on two CPUs at the same moment. Then it calls after
// on one of them.
func onTwoCPUs(t *testing.T, fn func(cpu, round int) error, after func(round int)) (rounds int) {
	t.Helper()
	if runtime.NumCPU() < 2 {
		t.Fatal("this takes two CPUs")
	}
	deadline := time.Now().Add(time.Second)
	if os.Getenv("FLOODWALL_LONG") != "" {
		deadline = time.Now().Add(time.Minute)
	}
	var arrived atomic.Int64
	var done atomic.Bool
	meet := func(times int) {
		arrived.Add(1)
		for arrived.Load() < int64(2*times) { // waits without sleeping, because the wait is short and both must begin at the same moment
		}
	}
	var threads sync.WaitGroup
	for cpu := range 2 {
		threads.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread, with its CPU, ends with the goroutine
			var set unix.CPUSet
			set.Set(cpu)
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				t.Errorf("pin to CPU %d: %v", cpu, err)
			}
			for round := 0; !done.Load(); round++ {
				meet(3*round + 1)
				if err := withoutSignals(func() error { return fn(cpu, round) }); err != nil {
					t.Error(err)
				}
				meet(3*round + 2)
				if cpu == 0 {
					after(round)
					rounds++
					done.Store(t.Failed() || time.Now().After(deadline))
				}
				meet(3*round + 3)
			}
		})
	}
	threads.Wait()
	return rounds
}

// withoutSignals calls fn while this thread receives no signals. A pending signal ends a test run of a program (bpf_test_timer_continue of
// net/bpf/test_run.c). The run is then repeated, and the packets that it has already sent are charged twice. The Go runtime sends such signals to
// preempt a goroutine. It sends more of them on a busy machine.
func withoutSignals(fn func() error) error {
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^uint64(0)
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		return fmt.Errorf("block signals: %w", err)
	}
	err := fn()
	return errors.Join(err, unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil))
}

// TestLimitParallel sends packets of one source on two CPUs as fast as possible, without questions. The burst must pass, and then no more packets
// than the rate allows in the elapsed time. The precision of the result depends on the share of CPU time that the test gets.
func TestLimitParallel(t *testing.T) {
	const rate, burst = 200_000, 100_000
	l := loadLimits(t, ir.Limit{Rate: rate, Per: time.Second, Burst: burst, Src: &ir.Prefixes{V4: 32, V6: 64}})
	frame := limitFrame(t, 0, "10.1.2.3", "192.0.2.1", 60)
	start := monotonic(t)
	onTwoCPUs(t, func(int, int) error {
		_, err := l.Native().Run(&ebpf.RunOptions{Data: frame, Repeat: 1_000_000})
		return err
	}, func(int) {})
	took := (monotonic(t) - start).Seconds()
	passed, over := l.counted(t)
	t.Logf("%d packets passed, %d were over the limit in %.1f s", passed, over, took)
	if most := burst + 1 + rate*took; float64(passed) > most || passed < burst {
		t.Errorf("%d packets passed in %.1f s, the limit is %.0f", passed, took, most)
	}
	if over < passed {
		t.Errorf("only %d packets were over the limit: the test compares too little", over)
	}
}

// counted returns the number of packets that passed, and the number of those that exceeded the first limit.
func (l *limited) counted(t *testing.T) (passed, over int) {
	t.Helper()
	counters, err := l.Counters()
	if err != nil {
		t.Error(err)
	}
	return int(counters[image.SlotDefault].Packets), int(counters[image.SlotRules].Packets)
}

// TestLimitBurst sends more packets than the burst of a new source on two CPUs. The limit is in packets a day, so the duration of the test does not
// matter. The burst must pass. One more packet may pass if a CPU does not see yet that the other CPU has added the source.
func TestLimitBurst(t *testing.T) {
	const burst = 100
	l := loadLimits(t, ir.Limit{Rate: 1, Per: day, Burst: burst, Src: &ir.Prefixes{V4: 32, V6: 64}, Max: 1_000_000})
	frame := limitFrame(t, 0, "10.0.0.0", "192.0.2.1", 60)
	before, more := 0, 0
	rounds := onTwoCPUs(t, func(_, round int) error {
		_, err := l.Native().Run(&ebpf.RunOptions{Data: from(frame, host(round)), Repeat: burst})
		return err
	}, func(round int) {
		passed, _ := l.counted(t)
		if n := passed - before; n < burst || n > burst+1 {
			t.Errorf("round %d: %d packets passed, want %d", round, n, burst)
		}
		more += passed - before - burst
		before = passed
	})
	t.Logf("%d packets more than should have passed in %d bursts", more, rounds)
}

// host returns one of many addresses of 10.0.0.0/8.
func host(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

// TestLimitRaces charges six prefixes of one bucket, which has seven slots, on two CPUs at the same injected time. It does so repeatedly, after
// pauses in which the words wrap around, so that both CPUs sweep the bucket. No charge may be lost.
func TestLimitRaces(t *testing.T) {
	const burst, each = 500, 200
	limit := ir.Limit{Rate: 10_000_000, Per: time.Second, Burst: burst, Src: &ir.Prefixes{V4: 32, V6: 64}, Max: 1}
	l := loadLimits(t, limit)
	now := func(round int) time.Duration {
		return time.Hour + time.Duration(round)*1_373_000_000 // a third of the time in which words wrap around
	}
	var frames [6][]byte
	for i := range frames {
		frames[i] = from(limitFrame(t, 0, "10.0.0.0", "192.0.2.1", 60), host(i))
	}
	more, less := 0, 0
	rounds := onTwoCPUs(t, func(_, round int) error {
		for i := range frames {
			if _, err := l.Native().Run(question(frames[i], now(round), each)); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		return nil
	}, func(round int) {
		for i, n := range l.left(t, frames[:], now(round)) {
			switch want := burst - 2*each; {
			case n > want+1:
				t.Errorf("round %d: %d packets are left of the burst of source %d, want %d", round, n, i, want)
			case n > want:
				more++
			case n < want:
				less++
			}
		}
	})
	t.Logf("of %d bursts %d had one packet more, %d fewer than they should", rounds*len(frames), more, less)
	if less > 0 {
		t.Errorf("%d of %d bursts were charged with more than was sent", less, rounds*len(frames))
	}
}

// left sends packets of each source until its burst is used up. It returns the number of packets that passed.
func (l *limited) left(t *testing.T, frames [][]byte, now time.Duration) []int {
	passed := make([]int, len(frames))
	for i, frame := range frames {
		for !l.over(t, frame, now) {
			passed[i]++
		}
	}
	return passed
}
