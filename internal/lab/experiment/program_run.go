package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// A figure of a round is the smallest of so many runs, each of which is short beside the time that the scheduler gives a
// thread: what disturbs only adds.
const (
	runs       = 8
	fullRepeat = 20_000
)

// run measures every program with every kind of packet, in rounds. In each, all programs are loaded anew: where the kernel
// puts a program and its maps changes what it costs by some percent, and two runs of the bench are to differ no more than two
// rounds of one.
func (t *table) run(ctx context.Context, s *rig.Session, at *rig.Site) error {
	repeat, rounds := fullRepeat, 2*s.Rounds
	if s.Quick {
		repeat = fullRepeat / 10
	}
	frames, err := t.frames()
	if err != nil {
		return err
	}
	s.Steps.Expect(rounds)
	for round := range rounds {
		s.Steps.Show("%s, round %d of %d", t.columns[len(t.columns)-1].name, round+1, rounds)
		if err := t.runRound(ctx, s, at, frames, repeat); err != nil {
			return err
		}
		s.Steps.Step()
	}
	return nil
}

// frames are the table's kinds of packets.
func (t *table) frames() (frames [][]byte, err error) {
	for _, k := range t.kinds {
		f, err := rig.Frame(k.line)
		if err != nil {
			return nil, err
		}
		frames = append(frames, f)
	}
	return frames, nil
}

// runRound adds a figure to each column and kind of packet. The yardstick, attached elsewhere meanwhile (see install), shows
// how fast the machine is just now, for programs like Floodwall's: neighbors on the core and in its caches make both slower
// alike, for longer than a run takes. That is why the same build is up to 5% slower in one run than in another, and up to 2% by
// the yardstick.
func (t *table) runRound(ctx context.Context, s *rig.Session, at *rig.Site, frames [][]byte, repeat int) error {
	yardstick, err := rig.LoadPeerProgram(rig.Yardstick)
	if err != nil {
		return err
	}
	defer yardstick.Close()
	attached, err := at.Lab.Attach(at.Out, yardstick)
	if err != nil {
		return err
	}
	defer attached.Close()
	for _, c := range t.columns {
		if err := t.runColumn(ctx, s, at, c, yardstick, frames, repeat); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// yardstickTag tells the yardstick from others.
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

// runColumn adds a figure for each kind of packet. The program is loaded for it.
func (t *table) runColumn(
	ctx context.Context, s *rig.Session, at *rig.Site, c *column, yardstick *ebpf.Program, frames [][]byte, repeat int,
) error {
	program, remove, err := c.install(ctx, at)
	if err != nil {
		return err
	}
	err = onCPU(rig.ReceiverCPU, func() error {
		for kind, frame := range frames {
			if !s.Wants(c.row(t.kinds[kind])) {
				continue
			}
			ns, yardstickNs, err := fastestPair(ctx, program, yardstick, frame, repeat)
			if err != nil {
				return fmt.Errorf("%s: %w", t.kinds[kind].label, err)
			}
			c.figures[kind] = append(c.figures[kind], ns)
			c.shares[kind] = append(c.shares[kind], yardstickNs/ns)
		}
		return nil
	})
	return errors.Join(err, remove())
}

// fastestPair is the nanoseconds that two programs take, which are run by turns.
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

// runTime is the nanoseconds that a run of a program takes. The kernel's own answer has whole nanoseconds, and counts the
// time in which others had the CPU; that of the thread has neither fault, but a hundredth of one for the call.
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

// threadTime is the time that the calling thread has had a CPU.
func threadTime() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0, fmt.Errorf("thread's clock: %w", err)
	}
	return time.Duration(t.Nano()), nil
}

// onCPU runs fn on an urgent thread that is pinned to a CPU and ends with fn.
func onCPU(cpu int, fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, with its CPU, ends with the goroutine
		if err := lab.Place(cpu, lab.MoreUrgent); err != nil {
			done <- err
			return
		}
		done <- fn()
	}()
	return <-done
}

// publish adds the results to the outcome, and returns them as a table to read.
func (t *table) publish(s *rig.Session) *report.Table {
	all := &report.Table{Title: t.title, Head: []string{""}, Notes: []string{
		"By BPF_PROG_TEST_RUN: the thread's own time, the smallest of some runs in each round, and the median of the rounds, for",
		"which programs are loaded anew. The packet is in the cache. The empty program's time is that of the run itself: what a",
		"program costs is what it adds.",
	}}
	for _, c := range t.columns {
		all.Head = append(all.Head, c.head)
	}
	for i, k := range t.kinds {
		row := []string{k.label}
		for _, c := range t.columns {
			row = append(row, c.publish(s, k, i))
		}
		all.AddRow(row...)
	}
	return all
}

// publish adds what a column's program costs with a kind of packet to the outcome, and returns it as text.
func (c *column) publish(s *rig.Session, kind packetKind, at int) string {
	figures := c.figures[at]
	if len(figures) == 0 {
		return ""
	}
	s.Outcome.Results = append(s.Outcome.Results, lab.Result{
		Name: "program/" + c.row(kind), Runs: len(figures),
		Metrics: []lab.Metric{figures.Metric("ns/op"), c.shares[at].Metric("of-yardstick")},
	})
	return strconv.FormatFloat(figures.Median(), 'f', 1, 64)
}

// bars hold what the table's kinds of packets cost above the empty program under their bounds.
func (t *table) bars(s *rig.Session) {
	empty := t.columns[0]
	for _, c := range t.columns[1:] {
		for i, k := range t.kinds {
			if k.most > 0 && len(c.figures[i]) > 0 && len(empty.figures[i]) > 0 {
				above := c.figures[i].Median() - empty.figures[i].Median()
				s.Outcome.Bars = append(s.Outcome.Bars, report.AtMost("program/"+c.row(k)+" ns above empty", above, k.most))
			}
		}
	}
}
