// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"encoding/binary"
	"fmt"
)

// memory is everything that a program can address. The upper bits of an address are the number of its region, from 1. Every region starts after a
// gap, so an address slightly below it is in no region.
type memory struct {
	regions []*region
	free    []int // numbers of removed regions
}

const (
	regionBits = 40
	regionGap  = 1 << 20
)

// region is a piece of memory. Either it has its own bytes, or it is read from the kernel. In the second case, writes are only in the machine.
type region struct {
	name    string
	base    uint64 // its address
	size    uint64
	bytes   []byte                                 // bytes of its own
	read    func(offset uint64, into []byte) error // reads from the kernel
	written map[uint64]byte                        // overrides the kernel's content
	stack   bool                                   // the program's stack
	shared  bool                                   // shared by all CPUs: the values of maps that are not per-CPU
	passing bool                                   // removed by Forget
}

// add gives a region its address.
func (m *memory) add(r *region) *region {
	at := len(m.regions)
	if n := len(m.free); n > 0 {
		at, m.free = m.free[n-1], m.free[:n-1]
	} else {
		m.regions = append(m.regions, nil)
	}
	m.regions[at] = r
	r.base = uint64(at+1)<<regionBits + regionGap
	return r
}

// addPassing adds a region that dropPassing removes.
func (m *memory) addPassing(name string, bytes []byte) *region {
	r := m.private(name, bytes)
	r.passing = true
	return r
}

func (m *memory) dropPassing() {
	for at, r := range m.regions {
		if r != nil && r.passing {
			m.regions[at] = nil
			m.free = append(m.free, at)
		}
	}
}

// private adds a region with bytes of its own.
func (m *memory) private(name string, bytes []byte) *region {
	return m.add(&region{name: name, size: uint64(len(bytes)), bytes: bytes})
}

// find returns the region of length bytes at an address, and the offset in it.
func (m *memory) find(at uint64, length int) (*region, uint64, error) {
	n := at >> regionBits
	if n == 0 || n > uint64(len(m.regions)) || m.regions[n-1] == nil {
		return nil, 0, fmt.Errorf("%#x is no address of the program's memory", at)
	}
	r := m.regions[n-1]
	offset := at - r.base
	if offset > r.size || uint64(length) > r.size-offset {
		return nil, 0, fmt.Errorf("%d bytes at %d are outside of %s, which has %d", length, int64(offset), r.name, r.size)
	}
	return r, offset, nil
}

// load copies bytes from an address.
func (m *memory) load(at uint64, into []byte) (*region, error) {
	r, offset, err := m.find(at, len(into))
	if err != nil {
		return nil, err
	}
	if r.bytes != nil {
		copy(into, r.bytes[offset:])
		return r, nil
	}
	if err := r.read(offset, into); err != nil {
		return nil, fmt.Errorf("%s: %w", r.name, err)
	}
	for i := range into {
		if b, ok := r.written[offset+uint64(i)]; ok && len(r.written) > 0 {
			into[i] = b
		}
	}
	return r, nil
}

// store copies bytes to an address.
func (m *memory) store(at uint64, from []byte) (*region, error) {
	r, offset, err := m.find(at, len(from))
	if err != nil {
		return nil, err
	}
	if r.bytes != nil {
		copy(r.bytes[offset:], from)
		return r, nil
	}
	if r.written == nil {
		r.written = map[uint64]byte{}
	}
	for i, b := range from {
		r.written[offset+uint64(i)] = b
	}
	return r, nil
}

// bytes reads length bytes from an address.
func (m *memory) bytes(at uint64, length int) ([]byte, error) {
	b := make([]byte, length)
	_, err := m.load(at, b)
	return b, err
}

// number reads a number of 1, 2, 4 or 8 bytes in the byte order of this machine.
func (m *memory) number(at uint64, size int) (uint64, *region, error) {
	var b [8]byte
	r, err := m.load(at, b[:size])
	return getNumber(b[:size]), r, err
}

// setNumber writes a number of 1, 2, 4 or 8 bytes in the byte order of this machine.
func (m *memory) setNumber(at uint64, size int, v uint64) (*region, error) {
	var b [8]byte
	putNumber(b[:size], v)
	return m.store(at, b[:size])
}

func getNumber(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.NativeEndian.Uint16(b))
	case 4:
		return uint64(binary.NativeEndian.Uint32(b))
	}
	return binary.NativeEndian.Uint64(b)
}

func putNumber(b []byte, v uint64) {
	switch len(b) {
	case 1:
		b[0] = byte(v)
	case 2:
		binary.NativeEndian.PutUint16(b, uint16(v))
	case 4:
		binary.NativeEndian.PutUint32(b, uint32(v))
	default:
		binary.NativeEndian.PutUint64(b, v)
	}
}
