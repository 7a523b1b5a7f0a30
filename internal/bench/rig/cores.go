package rig

import (
	"slices"

	"github.com/floodwall/floodwall/internal/bench/report"
	"github.com/floodwall/floodwall/internal/lab"
)

// Cores says where the source runs.
type Cores int

const (
	// twoCores has source and receiver run on a core each. A figure is the rate at which packets arrive. On veth, the
	// receiver fetches each frame from the other core's cache.
	twoCores Cores = iota

	// OneCore has both run on one. A figure is the receive thread's own time per packet, or its inverse. The frame is in
	// the cache, much as one is that a network card has written there.
	OneCore
)

// On is the same table for other cores, with nothing measured yet.
func (t *RateTable) On(c Cores) *RateTable {
	other := *t
	other.cores, other.Rows, other.Notes = c, nil, slices.Clone(t.Notes)
	for _, r := range t.Rows {
		clone := *r
		clone.Rounds, clone.reference, clone.disturbed, clone.starved = nil, nil, 0, 0
		other.Rows = append(other.Rows, &clone)
		switch r {
		case t.empty:
			other.empty = &clone
		case t.touch:
			other.touch = &clone
		case t.Base:
			other.Base = &clone
		case t.Rival:
			other.Rival = &clone
		}
	}
	return &other
}

// cpu is where the source runs.
func (c Cores) cpu() int {
	if c == OneCore {
		return ReceiverCPU
	}
	return SourceCPU
}

// figure is what of a measurement counts, in packets per second.
func (c Cores) figure(m lab.Measurement) float64 {
	if c == OneCore && m.Cost() > 0 {
		return float64(m.Packets) / (m.Ran * m.Time.Seconds())
	}
	return m.PPS
}

// starved reports whether the receiver could have taken more: the source is slower, or was held up. On one core it
// always could.
func (c Cores) starved(m lab.Measurement) bool {
	return c == twoCores && m.Ran < 1-IdleShare && m.Refused == 0
}

// suffix is for titles, prefix for the names of results.
func (c Cores) suffix() string {
	return report.Choice(c == OneCore, ", source and receiver on one core", ", source and receiver on a core each")
}

func (c Cores) prefix() string { return report.Choice(c == OneCore, "/one-core", "") }
