package datapath

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// Errors of samples.
var (
	ErrNoSamples    = errors.New("no rule hands out samples")
	ErrSamplesTaken = errors.New("another process reads the samples")
	ErrNoTraffic    = errors.New("the policy has no samples taken of the traffic")
)

// Sample is a packet that a rule with `sample` has handed to user space.
type Sample struct {
	Time    time.Time // when it came
	Slot    uint32    // of the rule, or whatever decided
	Verdict uint8     // an ir.Verdict, and in a sample of the traffic image.Protected where a protection decided after it, or image.Leaves alone
	Share   uint32    // of 2^32 packets so many are sampled; 0 in samples of rules
	Device  int       // the index of the device that it came from
	Length  int       // of the whole frame
	Frame   []byte    // the first of them, at most SampleBytes, as they came
}

// SampleBytes is how much of a frame is handed out at most.
const SampleBytes = 128

// Samples reads the samples of one generation. They are for one reader at a time.
type Samples struct {
	ring     *ringbuf.Reader
	samplers *ebpf.Map
	shares   *ebpf.Map // nil in samples of rules
	record   ringbuf.Record
	opened   uint64    // in nanoseconds of CLOCK_MONOTONIC; what is older was left from before
	boot     time.Time // when that clock was at zero
	lost     uint64    // until then
	ended    time.Time // when a read found that its context had ended,
	over     bool      // and whether all that was taken before has been read
	lock     *os.File
}

// Sampled lists the slots of rules that hand out samples, each with the number of packets of which it hands out one.
func (g *Generation) Sampled() (map[uint32]uint32, error) {
	memory, err := g.Memory(image.Actions)
	if err != nil {
		return nil, err
	}
	oneIn := map[uint32]uint32{}
	const sample = int(unsafe.Offsetof(image.ActionRecord{}.Sample))
	for slot := range len(memory[image.Actions]) / image.ActionSize {
		if n := binary.NativeEndian.Uint32(memory[image.Actions][image.ActionSize*slot+sample:]); n > 0 {
			oneIn[uint32(slot)] = n
		}
	}
	return oneIn, nil
}

// Samples begins to read what rules hand out from now on. It returns ErrNoSamples when no rule of the generation does,
// and ErrSamplesTaken while another process reads.
func (g *Generation) Samples() (*Samples, error) {
	lock, err := os.Open(g.dir)
	if err != nil {
		return nil, fmt.Errorf("samples: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrSamplesTaken
		}
		return nil, err
	}
	s, err := readSamples(g.pinned, image.Samples, image.Samplers, ErrNoSamples)
	if err != nil {
		lock.Close()
		return nil, err
	}
	s.lock = lock
	return s, nil
}

// Samples begins to read what rules of a loaded program hand out, as Generation.Samples does.
func (p *Program) Samples() (*Samples, error) {
	return readSamples(p.clone, image.Samples, image.Samplers, ErrNoSamples)
}

// Traffic begins to read the samples that are taken of all packets from now on. It returns ErrNoTraffic when none are. They are for one
// reader: the daemon, of which an instance has one.
func (g *Generation) Traffic() (*Samples, error) {
	return readTraffic(g.pinned)
}

// Traffic begins to read the samples of a loaded program, as Generation.Traffic does.
func (p *Program) Traffic() (*Samples, error) {
	return readTraffic(p.clone)
}

// readTraffic reads the samples of all packets.
func readTraffic(open func(name string) (*ebpf.Map, error)) (*Samples, error) {
	s, err := readSamples(open, image.Traffic, image.TrafficSamplers, ErrNoTraffic)
	if err != nil {
		return nil, err
	}
	if s.shares, err = open(image.TrafficShares); err != nil {
		return nil, errors.Join(fmt.Errorf("samples: %w", err), s.Close())
	}
	return s, nil
}

// Shares are of how many packets in 2^32 one is sampled of those that arrive, and that leave.
type Shares struct{ Arriving, Leaving uint32 }

// Shares are those of now: the program lowers them where they bring too many samples.
func (s *Samples) Shares() (now Shares, err error) {
	if err = s.shares.Lookup(uint32(0), &now); err != nil {
		err = fmt.Errorf("samples: %w", err)
	}
	return now, err
}

// SetShares sets them.
func (s *Samples) SetShares(to Shares) error {
	if err := s.shares.Put(uint32(0), to); err != nil {
		return fmt.Errorf("samples: %w", err)
	}
	return nil
}

// clone opens a map of the program once more. It returns os.ErrNotExist when there is none.
func (p *Program) clone(name string) (*ebpf.Map, error) {
	if m := p.Map(name); m != nil {
		return m.Clone()
	}
	return nil, os.ErrNotExist
}

// readSamples reads a ring, of which samplers counts what was lost.
func readSamples(open func(name string) (*ebpf.Map, error), name, samplers string, missing error) (*Samples, error) {
	ring, err := open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, missing
	}
	if err != nil {
		return nil, fmt.Errorf("samples: %w", err)
	}
	defer ring.Close()
	s := &Samples{}
	if s.samplers, err = open(samplers); err != nil {
		return nil, fmt.Errorf("samples: %w", err)
	}
	if s.ring, err = ringbuf.NewReader(ring); err != nil {
		s.samplers.Close()
		return nil, fmt.Errorf("samples: %w", err)
	}
	return s, s.begin()
}

// begin notes the present as the time from which on samples count.
func (s *Samples) begin() error {
	s.opened = uint64(image.Monotonic())
	s.boot = time.Now().Add(-time.Duration(s.opened))
	lost, err := s.Lost()
	if err != nil {
		return errors.Join(err, s.Close())
	}
	s.lost = lost
	return nil
}

// lookAtRing is how long to wait for the program to wake the reader, which it does when there is much to read, or never.
const lookAtRing = 100 * time.Millisecond

// Read waits for a sample. Its frame is valid until the next Read. When ctx has ended, it still returns those that were taken before.
func (s *Samples) Read(ctx context.Context) (Sample, error) {
	for {
		err := readRing(ctx, s.ring, &s.record)
		ended := ctx.Err()
		if err != nil && ended != nil && !s.over {
			s.ring.SetDeadline(time.Now())
			if s.ring.ReadInto(&s.record) == nil {
				err = nil
			}
		}
		if err != nil {
			return Sample{}, fmt.Errorf("samples: %w", err)
		}
		sample, ok := s.decode(s.record.RawSample)
		switch {
		case ended == nil:
			s.ended, s.over = time.Time{}, false
		case s.ended.IsZero():
			s.ended = time.Now()
		default:
			s.over = sample.Time.After(s.ended)
		}
		if ok {
			return sample, nil
		}
	}
}

// readRing waits for a record of a ring whose writer does not wake the reader for each.
func readRing(ctx context.Context, ring *ringbuf.Reader, record *ringbuf.Record) error {
	for ctx.Err() == nil {
		ring.SetDeadline(time.Now().Add(lookAtRing))
		err := ring.ReadInto(record)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
	return ctx.Err()
}

// decode reads a struct sample of bpf/sample.h. It reports false for one from before.
func (s *Samples) decode(record []byte) (Sample, bool) {
	const header = 32
	order := binary.NativeEndian
	at := order.Uint64(record)
	return Sample{
		Time:    s.boot.Add(time.Duration(at)),
		Slot:    order.Uint32(record[8:]),
		Verdict: uint8(order.Uint32(record[12:])),
		Device:  int(order.Uint32(record[16:])),
		Length:  int(order.Uint32(record[20:])),
		Share:   order.Uint32(record[28:]),
		Frame:   record[header : header+order.Uint32(record[24:])],
	}, at >= s.opened
}

// Lost counts the samples since the start that were to be handed out and were not: a CPU hands out 10,000 a second at
// most, and the reader may be too slow.
func (s *Samples) Lost() (uint64, error) {
	var lost uint64
	for direction := range s.samplers.MaxEntries() {
		var perCPU []struct{ Next, Lost, Eased uint64 }
		if err := s.samplers.Lookup(direction, &perCPU); err != nil {
			return 0, fmt.Errorf("lost samples: %w", err)
		}
		for _, c := range perCPU {
			lost += c.Lost
		}
	}
	return lost - s.lost, nil
}

// Close ends the reading.
func (s *Samples) Close() error {
	err := s.ring.Close()
	if s.lock != nil {
		s.lock.Close()
	}
	if s.shares != nil {
		s.shares.Close()
	}
	return errors.Join(err, s.samplers.Close())
}
