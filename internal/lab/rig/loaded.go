package rig

import (
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
)

// Loaded is a list in the kernel.
type Loaded struct {
	Subject Subject
	Seconds report.Samples // that loading took
	Bytes   float64        // of kernel memory; 0: unknown
	Roughly bool           // bytes is the change of the whole machine's memory
	Note    string
}

// Metrics are what loading cost.
func (g Loaded) Metrics() (all []lab.Metric) {
	if len(g.Seconds) > 0 {
		all = append(all, g.Seconds.Metric("load-s"))
	}
	if g.Bytes > 0 {
		all = append(all, lab.Metric{Value: g.Bytes, Unit: "kernel-B"})
	}
	return all
}

// Weighed adds what the machine's memory grew by, of which so many entries are the cause.
func (g Loaded) Weighed(before int64, entries, least int) Loaded {
	grown := KernelMemory() - before
	if entries < least || grown <= 0 {
		g.Note = "memory: too little to tell from that of the rest of the machine"
		return g
	}
	g.Bytes, g.Roughly = float64(grown), true
	return g
}

// leastToWeigh is from which number of entries on the memory of a set stands out of what else happens on a machine.
const leastToWeigh = 100_000

// SlowSize is from which number of addresses on slow tools take minutes.
const SlowSize = 5_000_000
