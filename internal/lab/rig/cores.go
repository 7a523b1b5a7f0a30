package rig

import (
	"slices"

	"github.com/floodwall/floodwall/internal/lab/report"
)

// Cores says where the source runs.
type Cores int

const (
	// twoCores has source and receiver run on a core each. On veth, the receiver fetches each frame from the other core's cache.
	twoCores Cores = iota

	// OneCore has both run on one. The frame is in the cache, much as one is that a network card has written there.
	OneCore
)

// On is the same table for other cores, with nothing measured yet.
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

// cpu is where the source runs.
func (c Cores) cpu() int {
	if c == OneCore {
		return ReceiverCPU
	}
	return SourceCPU
}

// suffix is for titles, prefix for the names of results.
func (c Cores) suffix() string {
	return report.Choice(c == OneCore, ", source and receiver on one core", ", source and receiver on a core each")
}

func (c Cores) prefix() string { return report.Choice(c == OneCore, "/one-core", "") }
