// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"os"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// mostMapped is the number of bytes that one system call maps. For each call the kernel enters all pages into the page tables. Unless the kernel is
// preemptible, no other task can run on the CPU meanwhile (kernel mm/vmalloc.c, remap_vmalloc_range_partial). That takes 2.5 ms for the 32 MB of ten
// million addresses, and 0.2 ms for 2 MB.
const mostMapped = 2 << 20

// mapMemory maps an array map into memory.
func mapMemory(m *ebpf.Map, bytes int) ([]byte, error) {
	page := os.Getpagesize()
	whole := (bytes + page - 1) &^ (page - 1)
	// First reserve the address range, so that the parts are contiguous. They then replace the reservation.
	at, err := unix.MmapPtr(-1, 0, nil, uintptr(whole), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("mapping its memory: %w", err)
	}
	memory := unsafe.Slice((*byte)(at), whole)[:bytes]
	for done := 0; done < whole; done += mostMapped {
		part := uintptr(min(mostMapped, whole-done))
		_, err := unix.MmapPtr(m.FD(), int64(done), unsafe.Add(at, done), part, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
		if err != nil {
			unmap(memory)
			return nil, fmt.Errorf("mapping its memory: %w", err)
		}
	}
	return memory, nil
}

// unmap unmaps the memory of mapMemory, in the same parts.
func unmap(memory []byte) {
	memory = memory[:cap(memory)]
	for part := range slices.Chunk(memory, mostMapped) {
		_ = unix.MunmapPtr(unsafe.Pointer(&part[0]), uintptr(len(part))) // fails only for memory that is not mapped
	}
}
