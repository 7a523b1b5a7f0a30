package rig

import (
	"os"
	"strconv"
	"strings"
)

// KernelMemory is the memory in the kernel's slabs that cannot be reclaimed, and in vmalloc, which is where sets of nft
// live; in bytes.
func KernelMemory() int64 { return int64(meminfo("SUnreclaim:") + meminfo("VmallocUsed:")) }

// AvailableMemory is the memory that can be had, in bytes.
func AvailableMemory() uint64 { return meminfo("MemAvailable:") }

// meminfo reads a line of /proc/meminfo, in bytes; 0 when there is none.
func meminfo(name string) uint64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name {
			n, _ := strconv.ParseUint(f[1], 10, 64)
			return n << 10
		}
	}
	return 0
}
