package bench

import "github.com/floodwall/floodwall/internal/lab"

// loaded is a list in the kernel.
type loaded struct {
	subject subject
	seconds series  // that loading took
	octets  float64 // of kernel memory; 0: unknown
	roughly bool    // octets is the change of the whole machine's memory
	note    string
}

// metrics are what loading cost.
func (g loaded) metrics() (all []lab.Metric) {
	if len(g.seconds) > 0 {
		all = append(all, g.seconds.metric("load-s"))
	}
	if g.octets > 0 {
		all = append(all, lab.Metric{Value: g.octets, Unit: "kernel-B"})
	}
	return all
}

// weighed adds what the machine's memory grew by, of which so many entries are the cause.
func (g loaded) weighed(before int64, entries, least int) loaded {
	grown := kernelMemory() - before
	if entries < least || grown <= 0 {
		g.note = "memory: too little to tell from that of the rest of the machine"
		return g
	}
	g.octets, g.roughly = float64(grown), true
	return g
}

// leastToWeigh is from which number of entries on the memory of a set stands out of what else happens on a machine.
const leastToWeigh = 100_000

// slowSize is from which number of addresses on slow tools take minutes.
const slowSize = 5_000_000
