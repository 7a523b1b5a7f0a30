package bench

import (
	"slices"

	"github.com/floodwall/floodwall/internal/lab"
)

// cores says where the source runs.
type cores int

const (
	// twoCores has source and receiver run on a core each. A figure is the rate at which packets arrive. On veth, the
	// receiver fetches each frame from the other core's cache.
	twoCores cores = iota

	// oneCore has both run on one. A figure is the receive thread's own time per packet, or its inverse. The frame is in
	// the cache, much as one is that a network card has written there.
	oneCore
)

// on is the same table for other cores, with nothing measured yet.
func (t *rateTable) on(c cores) *rateTable {
	other := *t
	other.cores, other.rows, other.notes = c, nil, slices.Clone(t.notes)
	for _, r := range t.rows {
		clone := *r
		clone.rounds, clone.reference, clone.disturbed, clone.starved = nil, nil, 0, 0
		other.rows = append(other.rows, &clone)
		switch r {
		case t.empty:
			other.empty = &clone
		case t.touch:
			other.touch = &clone
		case t.base:
			other.base = &clone
		case t.rival:
			other.rival = &clone
		}
	}
	return &other
}

// cpu is where the source runs.
func (c cores) cpu() int {
	if c == oneCore {
		return receiverCPU
	}
	return sourceCPU
}

// figure is what of a measurement counts, in packets per second.
func (c cores) figure(m lab.Measurement) float64 {
	if c == oneCore && m.Cost() > 0 {
		return float64(m.Packets) / (m.Ran * m.Time.Seconds())
	}
	return m.PPS
}

// starved reports whether the receiver could have taken more: the source is slower, or was held up. On one core it
// always could.
func (c cores) starved(m lab.Measurement) bool {
	return c == twoCores && m.Ran < 1-idleShare && m.Refused == 0
}

// suffix is for titles, prefix for the names of results.
func (c cores) suffix() string {
	return choice(c == oneCore, ", source and receiver on one core", ", source and receiver on a core each")
}

func (c cores) prefix() string { return choice(c == oneCore, "/one-core", "") }
