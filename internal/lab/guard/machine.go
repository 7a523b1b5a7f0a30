package guard

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Machine runs a loaded XDP program. It is for one goroutine at a time.
type Machine struct {
	Now func() uint64 // nanoseconds that the clocks show; that of CLOCK_MONOTONIC unless set
	CPU int           // whose parts of maps that have one for each CPU; before the first packet

	memory
	layout   layout
	symbols  *Symbols
	program  *program
	programs map[ebpf.ProgramID]*program // by tail calls
	tables   map[ebpf.MapID]*table
	byObject map[uint64]*table // by the address of its object

	context, frame, stack *region
	jiffies               *region // the kernel's counter of ticks
	data, dataEnd         uint64
	seed                  uint64
	counts                Counts
	executed              map[*program][]int // how often each instruction was, by its place
}

// Result is what a program did with a frame.
type Result struct {
	Counts
	Action uint32 // enum xdp_action of linux/bpf.h
	Frame  []byte // as the program left it
}

// The memory of a frame: what BPF_PROG_TEST_RUN gives it (net/bpf/test_run.c of the kernel).
const (
	frameSize      = 4096
	headroom       = 256 // XDP_PACKET_HEADROOM
	tailroom       = 320 // struct skb_shared_info, whole cache lines
	ethernetHeader = 14
)

// tick is how many nanoseconds one of the kernel's ticks takes here: that of a kernel with CONFIG_HZ=250.
const tick = 4_000_000

// The stack has 512 bytes for each call under way, of which there may be 8 (linux/bpf_verifier.h).
const (
	stackFrame = 512
	maxCalls   = 8
)

// OpenProgram readies a machine for a loaded program. The program may be closed meanwhile; the machine must be closed, too.
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
	if m.program, err = m.openProgram(p); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// addFixed adds the regions of every program: the packet arrives at queue 0 of device 1, as in BPF_PROG_TEST_RUN.
func (m *Machine) addFixed() {
	l := &m.layout
	m.stack = m.private("the stack", make([]byte, maxCalls*stackFrame))
	m.stack.stack = true
	m.frame = m.private("the frame", make([]byte, frameSize))
	m.context = m.private("struct xdp_buff", make([]byte, l.buff))
	m.jiffies = m.add(&region{name: "jiffies", size: 8, read: func(offset uint64, into []byte) error {
		var ticks [8]byte
		putNumber(ticks[:], m.Now()/tick)
		copy(into, ticks[offset:])
		return nil
	}})
	queue := m.private("struct xdp_rxq_info", make([]byte, l.rxqInfo))
	device := m.private("struct net_device", make([]byte, l.ifindex+4))
	putNumber(device.bytes[l.ifindex:][:4], 1)
	putNumber(queue.bytes[l.device:][:8], device.base)
	putNumber(m.context.bytes[l.rxq:][:8], queue.base)
}

// Close lets go of the program and its maps.
func (m *Machine) Close() (err error) {
	for _, t := range m.tables {
		err = errors.Join(err, t.close())
	}
	clear(m.tables)
	return err
}

// Forget drops what programs have written: the next packet sees what the kernel has.
func (m *Machine) Forget() {
	for _, t := range m.tables {
		t.forget()
	}
	m.dropPassing()
	m.seed = 0
}

// Run gives a frame to the program.
func (m *Machine) Run(frame []byte) (Result, error) {
	if len(frame) < ethernetHeader || len(frame) > frameSize-headroom-tailroom {
		return Result{}, fmt.Errorf("frame of %d bytes: must be %d to %d", len(frame), ethernetHeader, frameSize-headroom-tailroom)
	}
	l := &m.layout
	clear(m.stack.bytes)
	clear(m.frame.bytes)
	copy(m.frame.bytes[headroom:], frame)
	m.data, m.dataEnd = m.frame.base+headroom, m.frame.base+headroom+uint64(len(frame))
	for _, set := range []struct{ at, to uint64 }{
		{l.data, m.data}, {l.dataMeta, m.data}, {l.dataEnd, m.dataEnd}, {l.dataHardStart, m.frame.base},
	} {
		putNumber(m.context.bytes[set.at:][:8], set.to)
	}
	putNumber(m.context.bytes[l.frameSize:][:4], frameSize)
	m.counts, m.executed = Counts{}, map[*program][]int{}
	action, err := m.execute()
	return Result{
		Counts: m.counts, Action: uint32(action),
		Frame: append([]byte(nil), m.frame.bytes[m.data-m.frame.base:m.dataEnd-m.frame.base]...),
	}, err
}

// monotonic is the time of CLOCK_MONOTONIC, which programs ask for.
func monotonic() uint64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0 // there is no kernel without it
	}
	return uint64(t.Nano())
}
