// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Machine runs a loaded program of XDP, or of the ingress of tc. Only one goroutine may use it at a time.
type Machine struct {
	Now func() uint64 // time of the clocks in nanoseconds; nil: CLOCK_MONOTONIC
	CPU int           // its parts of per-CPU maps are used; set it before the first packet

	memory
	layout   layout
	socket   socketLayout // of a program at tc
	symbols  *Symbols
	program  *program
	programs map[ebpf.ProgramID]*program // programs of tail calls
	tables   map[ebpf.MapID]*table
	byObject map[uint64]*table // by the address of its object

	context, frame, stack *region
	jiffies               *region // the kernel's counter of ticks
	describe              func()  // writes the frame's place into the context
	data, dataEnd         uint64
	seed                  uint64
	counts                Counts
	executed              map[*program][]int // of each instruction: the number of executions
}

// Result is the result of a program for a frame.
type Result struct {
	Counts
	Action uint32 // enum xdp_action of linux/bpf.h; at tc, enum tcx_action_base
	Frame  []byte // as the program left it
}

// The memory around a frame, as in BPF_PROG_TEST_RUN (net/bpf/test_run.c of the kernel).
const (
	frameSize      = 4096
	headroom       = 256 // XDP_PACKET_HEADROOM
	tailroom       = 320 // struct skb_shared_info, rounded up to cache lines
	ethernetHeader = 14
)

// tick is the nanoseconds of a kernel tick here, as with CONFIG_HZ=250.
const tick = 4_000_000

// The stack has 512 bytes for each nested call, of which there may be 8 (linux/bpf_verifier.h).
const (
	stackFrame = 512
	maxCalls   = 8
)

// OpenProgram prepares a machine for a loaded program. The caller may close the program. It must close the machine.
func OpenProgram(p *ebpf.Program) (m *Machine, err error) {
	m = &Machine{
		Now: monotonic, programs: map[ebpf.ProgramID]*program{}, tables: map[ebpf.MapID]*table{}, byObject: map[uint64]*table{},
	}
	if m.layout, err = kernelLayout(); err != nil {
		return nil, err
	}
	if m.symbols, err = KernelSymbols(); err != nil {
		return nil, err
	}
	m.addFixed()
	if err := m.contextOf(p); err != nil {
		return nil, err
	}
	if m.program, err = m.openProgram(p); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// addFixed adds the regions of every program.
func (m *Machine) addFixed() {
	m.stack = m.private("the stack", make([]byte, maxCalls*stackFrame))
	m.stack.stack = true
	m.frame = m.private("the frame", make([]byte, frameSize))
	m.jiffies = m.add(&region{name: "jiffies", size: 8, read: func(offset uint64, into []byte) error {
		var ticks [8]byte
		putNumber(ticks[:], m.Now()/tick)
		copy(into, ticks[offset:])
		return nil
	}})
}

// Close releases the program and its maps.
func (m *Machine) Close() (err error) {
	for _, t := range m.tables {
		err = errors.Join(err, t.close())
	}
	clear(m.tables)
	return err
}

// Forget undoes the program's writes: the next packet finds the kernel's content.
func (m *Machine) Forget() {
	for _, t := range m.tables {
		t.forget()
	}
	m.dropPassing()
	m.seed = 0
}

// Run runs the program on a frame.
func (m *Machine) Run(frame []byte) (Result, error) {
	if len(frame) < ethernetHeader || len(frame) > frameSize-headroom-tailroom {
		return Result{}, fmt.Errorf("frame of %d bytes: must be %d to %d", len(frame), ethernetHeader, frameSize-headroom-tailroom)
	}
	clear(m.stack.bytes)
	clear(m.frame.bytes)
	copy(m.frame.bytes[headroom:], frame)
	m.data, m.dataEnd = m.frame.base+headroom, m.frame.base+headroom+uint64(len(frame))
	m.describe()
	m.counts, m.executed = Counts{}, map[*program][]int{}
	action, err := m.execute()
	return Result{
		Counts: m.counts, Action: uint32(action),
		Frame: append([]byte(nil), m.frame.bytes[m.data-m.frame.base:m.dataEnd-m.frame.base]...),
	}, err
}

// monotonic returns the time of CLOCK_MONOTONIC.
func monotonic() uint64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0 // every kernel has it
	}
	return uint64(t.Nano())
}
