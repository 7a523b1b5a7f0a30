// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/internal/lab"
)

// Loaded is a list in the kernel.
type Loaded struct {
	Subject Subject
	Seconds report.Samples // of loading
	Bytes   float64        // of kernel memory; 0: unknown
	Roughly bool           // bytes is the change of the whole machine's memory
	Note    string
	Remove  func() error // nil: there is nothing to remove
}

// Cells returns the cells of a table of loading: a label, seconds, MB in the kernel, bytes for each entry, and a note.
func (g Loaded) Cells(label string, entries int) []string {
	cells := []string{label, "", "", "", g.Note}
	if len(g.Seconds) > 0 {
		cells[1] = report.SecondsText(g.Seconds.Median())
	}
	if g.Bytes > 0 {
		cells[2], cells[3] = fmt.Sprintf("%.1f", g.Bytes/1e6), fmt.Sprintf("%.0f", g.Bytes/float64(entries))
	}
	if g.Roughly {
		cells[4] = "memory: what the whole machine's slabs and vmalloc grew by"
	}
	return cells
}

// Metrics returns the costs of loading.
func (g Loaded) Metrics() (all []lab.Metric) {
	if len(g.Seconds) > 0 {
		all = append(all, g.Seconds.Metric("load-s"))
	}
	if g.Bytes > 0 {
		all = append(all, lab.Metric{Value: g.Bytes, Unit: "kernel-B"})
	}
	return all
}

// Weighed adds the growth of the machine's memory since before, in bytes. Entries is the number of entries that were loaded; below least entries,
// the growth says too little.
func (g Loaded) Weighed(before int64, entries, least int) Loaded {
	grown := KernelMemory() - before
	if entries < least || grown <= 0 {
		g.Note = "memory: too little to tell from that of the rest of the machine"
		return g
	}
	g.Bytes, g.Roughly = float64(grown), true
	return g
}

// leastToWeigh is the number of entries from which the memory of a set stands out from the other changes of a machine's memory.
const leastToWeigh = 100_000

// SlowSize is the number of addresses from which slow tools take minutes.
const SlowSize = 5_000_000

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
