package rig

import (
	"slices"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
)

// Cores describes the cores on which the source and the receiver run.
type Cores int

const (
	// twoCores runs source and receiver on separate cores. On veth, the receiver fetches each frame from the other core's cache.
	twoCores Cores = iota

	// OneCore runs both on one core. Each frame is in the cache of this core, similar to a frame that a network card has written there.
	OneCore
)

// On returns a copy of the table for other cores, without measurements.
func (t *RateTable) On(c Cores) *RateTable {
	other := *t
	other.cores, other.Rows, other.Notes = c, nil, slices.Clone(t.Notes)
	for _, r := range t.Rows {
		clone := *r
		clone.Rounds, clone.least, clone.disturbed = nil, nil, 0
		other.Rows = append(other.Rows, &clone)
		switch r {
		case t.least:
			other.least = &clone
		case t.Base:
			other.Base = &clone
		case t.Rival:
			other.Rival = &clone
		}
	}
	return &other
}

// cpu returns the CPU of the source.
func (c Cores) cpu() int {
	if c == OneCore {
		return ReceiverCPU
	}
	return SourceCPU
}

// suffix returns the text after titles, and prefix the text before the names of results.
func (c Cores) suffix() string {
	return report.Choice(c == OneCore, ", source and receiver on one core", ", source and receiver on a core each")
}

func (c Cores) prefix() string { return report.Choice(c == OneCore, "one-core/", "") }
