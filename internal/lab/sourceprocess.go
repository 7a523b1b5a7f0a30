package lab

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// sourceName is what this program is called as a process that sends.
const sourceName = "floodwall-source"

// sourceFile is the descriptor of the generator in that process: the first after the standard ones.
const sourceFile = 3

// sendings are runs of a generator in one system call.
type sendings struct {
	Frame  []byte
	Repeat uint32
	Batch  uint32
}

// run runs the generator. Interrupted calls are started again by the library; the limit in the program keeps the count.
func (s *sendings) run(program *ebpf.Program) error {
	_, err := program.Run(&ebpf.RunOptions{Data: s.Frame, Repeat: s.Repeat, Flags: testLiveFrames, BatchSize: s.Batch})
	if err != nil {
		return fmt.Errorf("run generator: %w", err)
	}
	return nil
}

// sendings are so many runs of the source's generator.
func (s *Source) sendings(repeat uint64) *sendings {
	return &sendings{s.frame, uint32(repeat), uint32(cmp.Or(s.options.Batch, batch))}
}

// sourceMain is all that the process that sends does, until it is killed, which takes effect at once.
func sourceMain() error {
	var s sendings
	if err := readInput(&s); err != nil {
		return err
	}
	program, err := ebpf.NewProgramFromFD(sourceFile)
	for err == nil {
		err = s.run(program)
	}
	return err
}

// runApart sends from a process of its own until ctx ends.
func (s *Source) runApart(ctx context.Context) error {
	// The first packet is due when the process begins: what is late by more than maxLag is not made up for.
	if err := s.generator.NextDue.Set(uint64(0)); err != nil {
		return err
	}
	if err := s.generator.Limit.Set(uint64(math.MaxUint64)); err != nil {
		return err
	}
	fd, err := unix.FcntlInt(uintptr(s.generator.Program.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	program := os.NewFile(uintptr(fd), "generator")
	defer program.Close()
	start := time.Now()
	defer func() { s.took = time.Since(start) }()
	_, err = s.device.Host.play(ctx, role{
		name: sourceName, cpu: s.options.CPU, priority: Eager, input: s.sendings(s.chunk()), files: []*os.File{program},
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}
