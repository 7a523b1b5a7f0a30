package bench

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/packet"
)

// runColumns runs every program on every kind of packet, in turn. The smallest figure counts: what disturbs only adds.
func (s *session) runColumns(ctx context.Context, columns []*column) error {
	repeat, rounds := 100_000, 2*s.Rounds
	if s.Quick {
		repeat = 5_000
	}
	frames := make([][]byte, len(packetKinds))
	for i, k := range packetKinds {
		spec, err := packet.Parse(k.line)
		if err != nil {
			return fmt.Errorf("packet %q: %w", k.line, err)
		}
		frames[i] = spec.Frame()
	}
	s.progress.expect(rounds)
	for round := range rounds {
		s.progress.show("%s, round %d of %d", columns[len(columns)-1].name, round+1, rounds)
		err := onCPU(receiverCPU, func() error { return runRound(ctx, columns, frames, repeat) })
		if err != nil {
			return err
		}
		s.progress.step()
	}
	return nil
}

func runRound(ctx context.Context, columns []*column, frames [][]byte, repeat int) error {
	for i, frame := range frames {
		for _, c := range columns {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			_, took, err := c.program.Benchmark(frame, repeat, nil)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", c.name, packetKinds[i].label, err)
			}
			c.best[i] = min(c.best[i], float64(took.Nanoseconds()))
		}
	}
	return nil
}

// onCPU runs fn on a thread that is pinned to a CPU and ends with fn.
func onCPU(cpu int, fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, with its CPU, ends with the goroutine
		var set unix.CPUSet
		set.Set(cpu)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			done <- fmt.Errorf("pin to CPU %d: %w", cpu, err)
			return
		}
		done <- fn()
	}()
	return <-done
}

// columnsTable is the table, whose results it adds to the outcome.
func (s *session) columnsTable(title string, columns []*column) *Table {
	t := &Table{Title: title, Head: []string{""}, Notes: []string{
		"By BPF_PROG_TEST_RUN, in whole nanoseconds as the kernel reports them, the smallest of the rounds. The packet is",
		"in the cache. The empty program's time is that of the run itself: what a program costs is what it adds.",
	}}
	for _, c := range columns {
		t.Head = append(t.Head, c.head)
	}
	for i, k := range packetKinds {
		row := []string{k.label}
		for _, c := range columns {
			if math.IsInf(c.best[i], 1) {
				row = append(row, "")
				continue
			}
			row = append(row, strconv.FormatFloat(c.best[i], 'f', 0, 64))
			s.outcome.Results = append(s.outcome.Results, lab.Result{
				Name: fmt.Sprintf("program/%s/packet=%s", c.name, k.name), Runs: 2 * s.Rounds,
				Metrics: []lab.Metric{{Value: c.best[i], Unit: "ns/op"}},
			})
		}
		t.row(row...)
	}
	return t
}
