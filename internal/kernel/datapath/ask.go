// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// questionSize is the size of struct question in bpf/explain.h.
const questionSize = 24

// unanswered is the initial value of the slot in a question. No counter slot has this number.
const unanswered = 0xffffffff

// Answer is the decision of a loaded program about a frame.
type Answer struct {
	Slot    uint32 // the counter slot, which identifies the reason
	Verdict uint8  // an ir.Verdict
	Entry   bool   // true: the generated entry decided; false: general() of bpf/floodwall.c decided
}

// Question is a frame for a loaded program, with options for the decision.
type Question struct {
	Frame  []byte        // at least 14 bytes
	Now    time.Duration // time on CLOCK_MONOTONIC for the limits; 0: the present time
	Charge bool          // charge limits as for a received packet; otherwise the question changes nothing

	Segments int // at tc: the number of segments that the kernel has joined to the frame, whose payload has Segment bytes each; 0: it has joined none
	Segment  int

	General bool // general() of bpf/floodwall.c must decide, although the generated entry could
}

// Flags of a question: SEEN_CHARGE, SEEN_ENTRY and SEEN_GENERAL of bpf/packet.h.
const (
	charge  = 2
	byEntry = 16
	general = 32
)

// flags returns the flags of struct question.
func (q *Question) flags() (flags uint32) {
	if q.Charge {
		flags |= charge
	}
	if q.General {
		flags |= general
	}
	return flags
}

// Ask runs a loaded program on a frame of at least 14 bytes (BPF_PROG_TEST_RUN). Nothing is counted and no packet is sent. key is the question key
// with which the program was loaded.
func Ask(prog *ebpf.Program, key uint64, frame []byte) (Answer, error) {
	return AskAt(prog, key, Question{Frame: frame})
}

// AskAt is Ask with the options of q.
func AskAt(prog *ebpf.Program, key uint64, q Question) (Answer, error) {
	in := make([]byte, questionSize, questionSize+len(q.Frame))
	binary.NativeEndian.PutUint64(in, key)
	binary.NativeEndian.PutUint64(in[8:], uint64(q.Now))
	binary.NativeEndian.PutUint32(in[16:], unanswered)
	binary.NativeEndian.PutUint32(in[20:], q.flags())
	in = append(in, q.Frame...)
	out := make([]byte, len(in))
	options := ebpf.RunOptions{
		Data:    in,
		DataOut: out,
		Repeat:  1,
		Context: xdpContext{Data: questionSize, DataEnd: uint32(len(in))},
	}
	if _, err := prog.Run(&options); err != nil {
		return Answer{}, fmt.Errorf("asking the loaded program: %w", err)
	}
	decision := binary.NativeEndian.Uint32(options.DataOut[16:])
	if decision == unanswered {
		return Answer{}, errors.New("asking the loaded program: it does not know the key of the question")
	}
	slot, verdict := image.SlotAndVerdict(decision)
	return Answer{slot, verdict, binary.NativeEndian.Uint32(options.DataOut[20:])&byEntry != 0}, nil
}

// xdpContext is struct xdp_md of the kernel's include/uapi/linux/bpf.h.
type xdpContext struct {
	Data, DataEnd, DataMeta      uint32
	IngressIfindex, RxQueueIndex uint32
	EgressIfindex                uint32
}

// AskAt runs the program on the frame of q, with the options of q.
func (p *Program) AskAt(q Question) (Answer, error) { return AskAt(p.Native(), p.key, q) }

// Ask runs the program on a frame.
func (p *Program) Ask(frame []byte) (Answer, error) { return Ask(p.Native(), p.key, frame) }

// AtTC is a loaded program at the ingress of tc, on a device with a link layer.
type AtTC struct{ Program *Program }

// byTC is the flag of an answer at tc: SEEN_ANSWERED of bpf/packet.h.
const byTC = 1024

// socketBuffer is the start of struct __sk_buff of the kernel's include/uapi/linux/bpf.h, up to gso_size. BPF_PROG_TEST_RUN accepts values only in the
// members that have a name here.
type socketBuffer struct {
	_        [12]uint32
	Question [5]uint32 // cb: see bpf/explain.h
	_        [24]uint32
	Segments uint32 // gso_segs
	_        [2]uint32
	Segment  uint32 // gso_size
	_        uint32
	_        uint64
}

// AskAt runs the program on the frame of q, with the options of q.
func (a AtTC) AskAt(q Question) (Answer, error) {
	prog, err := a.program()
	if err != nil {
		return Answer{}, err
	}
	return askAtTC(prog, a.Program.key, q)
}

// Receive runs the program on the frame of q as on a received packet, which it counts.
func (a AtTC) Receive(q Question) error {
	prog, err := a.program()
	if err != nil {
		return err
	}
	_, err = runAtTC(prog, q, [5]uint32{})
	return err
}

func (a AtTC) program() (*ebpf.Program, error) {
	collection, err := a.Program.At(image.TC)
	if err != nil {
		return nil, err
	}
	return collection.Programs[image.Program], nil
}

// askAtTC is AskAt for a program of tc, on a device with a link layer.
func askAtTC(prog *ebpf.Program, key uint64, q Question) (Answer, error) {
	now := uint64(q.Now)
	out, err := runAtTC(prog, q, [5]uint32{uint32(key), uint32(key >> 32), uint32(now), uint32(now >> 32), q.flags()})
	if err != nil {
		return Answer{}, fmt.Errorf("asking the loaded program at tc: %w", err)
	}
	if out.Question[4]&byTC == 0 {
		return Answer{}, errors.New("asking the loaded program at tc: it does not know the key of the question")
	}
	slot, verdict := image.SlotAndVerdict(out.Question[2])
	return Answer{slot, verdict, out.Question[4]&byEntry != 0}, nil
}

func runAtTC(prog *ebpf.Program, q Question, question [5]uint32) (out socketBuffer, err error) {
	_, err = prog.Run(&ebpf.RunOptions{
		Data: q.Frame, DataOut: make([]byte, len(q.Frame)+64), Repeat: 1, ContextOut: &out,
		Context: socketBuffer{Question: question, Segments: uint32(q.Segments), Segment: uint32(q.Segment)},
	})
	return out, err
}
