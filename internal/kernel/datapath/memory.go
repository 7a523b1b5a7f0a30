package datapath

import (
	"fmt"
	"os"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// mostMapped is how many bytes one system call maps. The kernel enters all pages of a call into the page tables before anything else gets the
// CPU, unless it was built to be interrupted (kernel mm/vmalloc.c, remap_vmalloc_range_partial): 2.5 ms for the 32 MB of ten million addresses,
// 0.2 ms for 2 MB.
const mostMapped = 2 << 20

// mapMemory maps the memory of an array map.
func mapMemory(m *ebpf.Map, bytes int) ([]byte, error) {
	page := os.Getpagesize()
	whole := (bytes + page - 1) &^ (page - 1)
	// A reservation first, so that the parts stand behind each other. They take its place.
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

// unmap gives up what mapMemory has mapped, by the same parts.
func unmap(memory []byte) {
	memory = memory[:cap(memory)]
	for part := range slices.Chunk(memory, mostMapped) {
		_ = unix.MunmapPtr(unsafe.Pointer(&part[0]), uintptr(len(part))) // fails for what is not mapped only
	}
}
