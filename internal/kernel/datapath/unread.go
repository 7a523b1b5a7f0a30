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

// The layout of a ring buffer's memory as user space maps it: a page with the position of the reader, one with that of the writer, and the
// records (kernel/bpf/ringbuf.c). Each record has a header of 8 bytes, whose first word is its length with two flags.
const (
	ringHeader = 8
	ringBusy   = 1 << 31 // it is being written
)

// Unread is for how long the oldest sample of the traffic waits for its reader, the daemon: 0 when none waits, or when the policy has none taken.
// It takes nothing from the reader.
func (g *Generation) Unread() (time.Duration, error) {
	m, err := g.pinned(image.Traffic)
	if format := new(FormatError); errors.Is(err, os.ErrNotExist) || errors.As(err, &format) { // the daemon that reads it is of that version, too
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
	began := int(read+ringHeader) & (size - 1) // a header never wraps, and what follows it may
	length, taken := binary.NativeEndian.Uint32(record[header:]), time.Duration(binary.NativeEndian.Uint64(record[began:]))
	if length&ringBusy != 0 || at(0) != read { // the reader has gone on meanwhile
		return 0, nil
	}
	return max(0, image.Monotonic()-taken), nil
}
