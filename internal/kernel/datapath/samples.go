// SPDX-License-Identifier: Apache-2.0

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
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Errors of samples.
var (
	ErrNoSamples    = errors.New("no rule hands out samples")
	ErrSamplesTaken = errors.New("another process reads the samples")
	ErrNoTraffic    = errors.New("the policy has no samples taken of the traffic")
)

// Sample is a sampled packet, from the kernel or from a file. Its JSON form is for other processes.
type Sample struct {
	Time    time.Time `json:"time,omitzero"`     // when the packet arrived; zero when not recorded
	Device  string    `json:"device,omitempty"`  // the device on which the packet arrived
	Verdict string    `json:"verdict,omitempty"` // the verdict of XDP; "" when it is not known: XDP has then passed the packet
	Reason  string    `json:"reason,omitempty"`  // the rule, check or default that decided; "" when not known
	Stands  float64   `json:"stands,omitempty"`  // number of packets that the sample represents; 0 when only the reader knows it
	Joined  int       `json:"joined,omitempty"`  // number of further packets that the kernel has joined to this one, the first of them; Stands includes them
	Length  int       `json:"length,omitempty"`  // length of the whole frame in bytes
	Frame   []byte    `json:"frame,omitempty"`   // the first bytes of the frame, with an Ethernet header of zeros if the device has no link layer

	// Numbers that the reader of Samples converts to names.
	Slot  uint32 `json:"-"` // the slot of the rule or other reason that decided
	Code  uint8  `json:"-"` // an ir.Verdict; in a sample of the traffic also with image.Protected if a protection decided after it, or only image.Leaves
	Index int    `json:"-"` // the index of the device
}

// SampleBytes is the largest number of bytes of a frame in a sample.
const SampleBytes = 128

// Samples reads the samples of one generation. Only one reader at a time may use it.
type Samples struct {
	ring     *ringbuf.Reader
	samplers *ebpf.Map
	shares   *ebpf.Map // the map of sampling rates; nil for samples of rules
	record   ringbuf.Record
	opened   uint64    // when reading started, in nanoseconds of CLOCK_MONOTONIC; samples from before are discarded
	boot     time.Time // the wall-clock time at which CLOCK_MONOTONIC was zero
	lost     uint64    // the number of samples that were lost before reading started
	ended    time.Time // when Read found that its context had ended
	over     bool      // whether all samples from before ended were read
	lock     *os.File
}

// Sampled returns the slots of rules that take samples. The value N for a slot means that one of N packets is sampled.
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

// Samples opens the samples of rules for reading. It returns ErrNoSamples when no rule of the generation takes samples, and ErrSamplesTaken while
// another process reads them.
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

// Samples opens the samples of rules of a loaded program, like Generation.Samples.
func (p *Program) Samples() (*Samples, error) {
	return readSamples(p.clone, image.Samples, image.Samplers, ErrNoSamples)
}

// Traffic opens the samples of all packets for reading. It returns ErrNoTraffic when the policy takes none. There must be only one reader: the
// daemon, of which an instance has one.
func (g *Generation) Traffic() (*Samples, error) {
	return readTraffic(g.pinned)
}

// Traffic opens the samples of all packets of a loaded program, like Generation.Traffic.
func (p *Program) Traffic() (*Samples, error) {
	return readTraffic(p.clone)
}

// readTraffic opens the samples of all packets.
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

// Shares are the sampling rates of arriving and leaving packets, as fractions of 2^32.
type Shares struct{ Arriving, Leaving uint32 }

// Shares returns the present rates. The program lowers the rates when they produce too many samples.
func (s *Samples) Shares() (now Shares, err error) {
	if err = s.shares.Lookup(uint32(0), &now); err != nil {
		err = fmt.Errorf("samples: %w", err)
	}
	return now, err
}

// SetShares sets the rates.
func (s *Samples) SetShares(to Shares) error {
	if err := s.shares.Put(uint32(0), to); err != nil {
		return fmt.Errorf("samples: %w", err)
	}
	return nil
}

// clone opens a second descriptor of a map of the program. It returns os.ErrNotExist when there is no such map.
func (p *Program) clone(name string) (*ebpf.Map, error) {
	if m := p.Map(name); m != nil {
		return m.Clone()
	}
	return nil, os.ErrNotExist
}

// readSamples opens the ring buffer with the given name. samplers is the name of the map that counts the ring's lost samples. missing is the error
// when there is no such ring.
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

// begin records the time at which reading starts. Earlier samples are ignored.
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

// lookAtRing is the longest time between two reads of a ring. The program wakes the reader only when the ring has much data.
const lookAtRing = 100 * time.Millisecond

// Read waits for a sample and returns it. The Frame is valid until the next Read. After ctx has ended, Read still returns samples from before that.
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

// readRing waits for a record of a ring. The writer of the ring does not wake the reader for each record.
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

// decode decodes a struct sample of bpf/sample.h. It returns false for a sample from before reading started.
func (s *Samples) decode(record []byte) (Sample, bool) {
	const header = 32
	order := binary.NativeEndian
	at := order.Uint64(record)
	verdict := order.Uint32(record[12:])
	out := Sample{
		Time:   s.boot.Add(time.Duration(at)),
		Slot:   order.Uint32(record[8:]),
		Code:   uint8(verdict),
		Joined: int(verdict >> image.JoinedShift),
		Index:  int(order.Uint32(record[16:])),
		Length: int(order.Uint32(record[20:])),
		Frame:  record[header : header+order.Uint32(record[24:])],
	}
	if out.Joined > 0 {
		packet.SetLength(out.Frame, out.Length)
	}
	if share := order.Uint32(record[28:]); share > 0 { // the fraction of packets that are sampled, of 2^32; 0 in samples of rules
		out.Stands = (1 << 32) / float64(share) * float64(1+out.Joined)
	}
	return out, at >= s.opened
}

// Lost returns the number of samples lost since reading started. Samples are lost because a CPU writes at most 10,000 a second, or because the reader
// is too slow.
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

// Close closes the reader.
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
