// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// ErrNoOffences says that no limit of a generation bans.
var ErrNoOffences = errors.New("no limit bans")

// Offence is a packet above the limit of a rule that bans. In a flood, most such packets are not reported.
type Offence struct {
	Limit  int // the number of the limit in the program
	Source netip.Addr
	Proved bool // the packet belongs to a TCP connection of this host, so its source address is not forged
}

// Offences reads the offences of one generation. Only one reader at a time may use it.
type Offences struct {
	ring   *ringbuf.Reader
	record ringbuf.Record
}

// Offences opens the offences of the generation for reading. It returns ErrNoOffences if no limit bans.
func (g *Generation) Offences() (*Offences, error) {
	m, err := g.pinned(image.Offences)
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrNoOffences
	}
	if err != nil {
		return nil, fmt.Errorf("offences: %w", err)
	}
	defer m.Close()
	ring, err := ringbuf.NewReader(m)
	if err != nil {
		return nil, fmt.Errorf("offences: %w", err)
	}
	o := &Offences{ring: ring}
	if err := o.drain(); err != nil {
		ring.Close()
		return nil, fmt.Errorf("offences: %w", err)
	}
	return o, nil
}

// drain discards unread offences, because their time is unknown.
func (o *Offences) drain() error {
	o.ring.SetDeadline(time.Now())
	for {
		err := o.ring.ReadInto(&o.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Read waits for an offence and returns it.
func (o *Offences) Read(ctx context.Context) (Offence, error) {
	if err := readRing(ctx, o.ring, &o.record); err != nil {
		return Offence{}, fmt.Errorf("offences: %w", err)
	}
	record, order := o.record.RawSample, binary.NativeEndian // struct offence of bpf/offence.h
	var bytes [16]byte
	binary.BigEndian.PutUint64(bytes[:], order.Uint64(record[8:]))
	binary.BigEndian.PutUint64(bytes[8:], order.Uint64(record[16:]))
	source := netip.AddrFrom16(bytes)
	if order.Uint16(record[4:]) == 0 {
		source = source.Unmap()
	}
	return Offence{int(order.Uint32(record)), source, order.Uint16(record[6:]) == 1}, nil
}

// Close closes the reader.
func (o *Offences) Close() error { return o.ring.Close() }
