package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// A figure of a round is the smallest result of this number of runs, because every disturbance only adds time. Each run is shorter than the
// scheduler's time slice.
const (
	runs       = 8
	fullRepeat = 20_000
)

// programs contains the site of all programs, and the programs that are loaded now.
type programs struct {
	*rig.Session
	at                 *rig.Site
	program, yardstick *ebpf.Program
	installed          []func() error // remove the yardstick and the program
}

// run measures the programs of a table with every kind of packet, in rounds. Each round loads all programs anew, because the addresses of a program
// and of its maps change its time by some percent. The difference between two runs of the bench must not be larger than between two rounds of one
// run.
func (p *programs) run(ctx context.Context, t *rig.Table) (*report.Table, error) {
	s := *p.Session
	s.Rounds *= 2
	if err := s.SetUpRows(ctx, t); err != nil {
		return nil, err
	}
	err := s.TakeAll(ctx, t)
	return t.Publish(p.Outcome), errors.Join(err, p.unload(0))
}

// load replaces the previous program by the program of a column. For the first column of a round it also loads the yardstick anew. The yardstick is
// attached elsewhere (see install). It shows the machine's current speed for programs like Floodwall's: neighbors on the core and in its caches slow
// both down equally, for longer than a run takes. Because of these neighbors, the same build is up to 5% slower in one run than in another. Measured
// by the yardstick, it is up to 2% slower.
func (p *programs) load(ctx context.Context, c column, first bool) (err error) {
	if first {
		if err := p.unload(0); err != nil {
			return err
		}
		if p.yardstick, err = rig.LoadPeerProgram(rig.Yardstick); err != nil {
			return err
		}
		p.installed = append(p.installed, p.yardstick.Close)
		attached, err := p.at.Lab.Attach(p.at.Out, p.yardstick)
		if err != nil {
			return err
		}
		p.installed = append(p.installed, attached.Close)
	}
	if err := p.unload(2); err != nil {
		return err
	}
	program, remove, err := c.install(ctx, p.at)
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	p.program, p.installed = program, append(p.installed, remove)
	return nil
}

// unload removes the things that load has installed, except the given number of the first ones.
func (p *programs) unload(but int) (err error) {
	for n := len(p.installed) - 1; n >= but; n-- {
		err = errors.Join(err, p.installed[n]())
		p.installed = p.installed[:n]
	}
	return err
}

// read runs the program on a kind of packet, in turn with the yardstick.
func (p *programs) read(ctx context.Context, k packetKind) (read rig.Reading, err error) {
	frame, err := rig.Frame(k.line)
	if err != nil {
		return nil, err
	}
	err = onCPU(rig.ReceiverCPU, lab.MoreUrgent, func() error {
		ns, yardstick, err := fastestPair(ctx, p.program, p.yardstick, frame, report.Choice(p.Quick, fullRepeat/10, fullRepeat))
		read = rig.Reading{"ns/op": ns, "of-yardstick": yardstick / ns}
		return err
	})
	return read, err
}

// yardstickTag returns the kernel's tag of the yardstick.
func yardstickTag() (string, error) {
	p, err := rig.LoadPeerProgram(rig.Yardstick)
	if err != nil {
		return "", err
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return "", fmt.Errorf("yardstick: %w", err)
	}
	return info.Tag, nil
}

// fastestPair returns the shortest nanoseconds of two programs, which are run in turn.
func fastestPair(ctx context.Context, a, b *ebpf.Program, frame []byte, repeat int) (bestA, bestB float64, err error) {
	bestA, bestB = math.Inf(1), math.Inf(1)
	for range runs {
		nsA, errA := runTime(a, frame, repeat)
		nsB, errB := runTime(b, frame, repeat)
		if err := cmp.Or(errA, errB, ctx.Err()); err != nil {
			return 0, 0, err
		}
		bestA, bestB = min(bestA, nsA), min(bestB, nsB)
	}
	return bestA, bestB, nil
}

// runTime returns the nanoseconds of a run of a program. The kernel's own result has whole nanoseconds, and includes time in which other threads had
// the CPU. The thread's CPU time has neither problem, but includes the system call: a hundredth of a nanosecond.
func runTime(p *ebpf.Program, frame []byte, repeat int) (float64, error) {
	before, err := threadTime()
	if err != nil {
		return 0, err
	}
	if _, _, err := p.Benchmark(frame, repeat, nil); err != nil {
		return 0, err
	}
	after, err := threadTime()
	return float64(after-before) / float64(repeat), err
}

// threadTime returns the CPU time of the calling thread.
func threadTime() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0, fmt.Errorf("thread's clock: %w", err)
	}
	return time.Duration(t.Nano()), nil
}

// onCPU runs fn on a separate thread with a priority, pinned to a CPU. The thread ends when fn returns.
func onCPU(cpu, priority int, fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, with its CPU, ends with the goroutine
		if err := lab.Place(cpu, priority); err != nil {
			done <- err
			return
		}
		done <- fn()
	}()
	return <-done
}
