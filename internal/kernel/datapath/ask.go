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

// unanswered is no decision: no slot has that number.
const unanswered = 0xffffffff

// Answer is the result of a loaded program for a frame.
type Answer struct {
	Slot    uint32 // of the counter, which stands for the reason
	Verdict uint8  // an ir.Verdict
	Entry   bool   // the generated entry decided, and not general() of bpf/floodwall.c
}

// Question is a frame for a loaded program, and how the program is to treat it.
type Question struct {
	Frame  []byte        // at least 14 bytes
	Now    time.Duration // of CLOCK_MONOTONIC since its zero, which limits count by; 0 is the present
	Charge bool          // limits are charged as by a packet from the wire; otherwise nothing changes

	General bool // general() of bpf/floodwall.c is to decide, also what the generated entry would
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

// Ask runs a loaded program on a frame of at least 14 bytes (BPF_PROG_TEST_RUN). Nothing is counted and no packet is
// sent. key is the question key that the program was loaded with.
func Ask(prog *ebpf.Program, key uint64, frame []byte) (Answer, error) {
	return AskAt(prog, key, Question{Frame: frame})
}

// AskAt is Ask at a time of the caller's choice.
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

// AskAt asks the program at a time of the caller's choice.
func (p *Program) AskAt(q Question) (Answer, error) { return AskAt(p.Native(), p.key, q) }

// Ask runs the program on a frame.
func (p *Program) Ask(frame []byte) (Answer, error) { return Ask(p.Native(), p.key, frame) }
