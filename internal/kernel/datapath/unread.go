// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// The layout of a ring buffer's memory in user space: a page with the reader's position, a page with the writer's position, and the records
// (kernel/bpf/ringbuf.c). Each record has a header of 8 bytes. The first word of the header is the length of the record, with two flags.
const (
	ringHeader = 8
	ringBusy   = 1 << 31 // the record is being written
)

// Unread returns the time for which the oldest sample of the traffic has waited for its reader, the daemon. It returns 0 when no sample waits, or
// when the policy takes no samples. It does not consume samples.
func (g *Generation) Unread() (time.Duration, error) {
	m, err := g.pinned(image.Traffic)
	if format := new(FormatError); errors.Is(err, os.ErrNotExist) || errors.As(err, &format) { // then the daemon also has the other version
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("unread samples: %w", err)
	}
	defer m.Close()
	page, size := os.Getpagesize(), int(m.MaxEntries())
	memory, err := unix.Mmap(m.FD(), 0, 2*page+size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, fmt.Errorf("unread samples: mapping their ring: %w", err)
	}
	defer unix.Munmap(memory)
	at := func(offset int) uint64 { return atomic.LoadUint64((*uint64)(unsafe.Pointer(&memory[offset]))) }
	read, written := at(0), at(page)
	if read == written {
		return 0, nil
	}
	record := memory[2*page:]
	header := int(read) & (size - 1)
	began := int(read+ringHeader) & (size - 1) // a header never wraps, but the data after it may
	length, taken := binary.NativeEndian.Uint32(record[header:]), time.Duration(binary.NativeEndian.Uint64(record[began:]))
	if length&ringBusy != 0 || at(0) != read { // the record is incomplete, or the reader has advanced meanwhile
		return 0, nil
	}
	return max(0, image.Monotonic()-taken), nil
}
