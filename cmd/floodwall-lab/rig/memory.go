package rig

import (
	"os"
	"strconv"
	"strings"
)

// KernelMemory returns the memory in the kernel's unreclaimable slabs and in vmalloc, in bytes. Sets of nft are there.
func KernelMemory() int64 { return int64(meminfo("SUnreclaim:") + meminfo("VmallocUsed:")) }

// AvailableMemory returns MemAvailable of /proc/meminfo, in bytes.
func AvailableMemory() uint64 { return meminfo("MemAvailable:") }

// meminfo reads a line of /proc/meminfo, in bytes; 0 if there is no such line.
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
