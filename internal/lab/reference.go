// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

// Reference programs. They are the limits that other programs are compared with.
const (
	DropAll     = labProgDropAll     // nothing but XDP_DROP
	PassAll     = labProgPassAll     // nothing but XDP_PASS
	TxAll       = labProgTxAll       // swaps the MAC addresses, XDP_TX
	CountDrop   = labProgCountDrop   // counts, XDP_DROP
	CountPass   = labProgCountPass   // counts, XDP_PASS
	CaptureDrop = labProgCaptureDrop // counts, copies the frame to user space, XDP_DROP
)

// Sink is a reference program that is attached to a device.
type Sink struct {
	Program  *ebpf.Program
	counted  *ebpf.Map
	captures *ringbuf.Reader
	closers  []func() error
}

// NewSink attaches one of the reference programs to d. It stays until the sink or the lab is closed.
func (l *Lab) NewSink(d *Device, program string) (*Sink, error) {
	s := &Sink{}
	err := s.open(l, d, program)
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("sink %s: %w", program, err)
	}
	l.onClose(s.Close)
	return s, nil
}

func (s *Sink) open(l *Lab, d *Device, program string) error {
	spec, err := labSpec()
	if err != nil {
		return err
	}
	if spec.Programs[program] == nil {
		return errors.New("no such reference program")
	}
	g, err := load(spec, program, nil)
	if err != nil {
		return err
	}
	s.Program = g.Program
	s.closers = append(s.closers, g.close)
	for name, m := range g.maps {
		switch name {
		case labMapCounted:
			s.counted = m
		case labMapCaptures:
			if s.captures, err = ringbuf.NewReader(m); err != nil {
				return fmt.Errorf("captures: %w", err)
			}
			s.closers = append(s.closers, s.captures.Close)
		}
	}
	attached, err := l.Attach(d, s.Program)
	if err == nil {
		s.closers = append(s.closers, attached.Close)
	}
	return err
}

// Close detaches and unloads the program.
func (s *Sink) Close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		if err := s.closers[i](); err != nil && !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
	}
	s.closers = nil
	return errors.Join(errs...)
}
