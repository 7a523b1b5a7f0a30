// This file measures a fleet in one process: three real hubs and many nodes. Their connections are no sockets, and their enforcers only count. Input:
// the numbers of nodes and bans. Output: rows with a figure each, and whether it meets its bar.
//
// Read fleet.go first: Run does the phases in fleet_phases.go, each with a site of its own (fleet_site.go).

package experiment

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// FleetOptions say how much is measured.
type FleetOptions struct {
	Nodes     int           // number of nodes in the phases with many nodes
	Few       int           // number of nodes in the phases with many bans
	Bans      int           // number of bans that a new node receives
	Rate      int           // bans per second in the sustained phase
	Sustained time.Duration // length of the sustained phase
	Partition time.Duration
	Probes    int // number of bans whose delay is measured
	Progress  io.Writer
}

// FleetRow is a measured value. Bar is the maximum that is allowed; 0: none.
type FleetRow struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Bar   float64 `json:"bar,omitempty"`
}

// Missed reports whether a row exceeds its bar.
func (r FleetRow) Missed() bool { return r.Bar > 0 && r.Value > r.Bar }

// fleetRun is the state that the phases share.
type fleetRun struct {
	FleetOptions
	dir  string
	rows []FleetRow
}

func (r *fleetRun) add(what string, value float64, unit string, bar float64) {
	r.rows = append(r.rows, FleetRow{what, value, unit, bar})
}

func (r *fleetRun) say(format string, args ...any) { fmt.Fprintf(r.Progress, format+"\n", args...) }

// ampleMemory is an amount of available memory in bytes. With more memory, the heap may grow more between two garbage collections. A thousand nodes
// in one process have a larger heap than any real node. Collections of this heap would take the CPU from the nodes when all of them change their
// records at the same time.
const ampleMemory = 16 << 30

// RunFleet measures a fleet in a network namespace that has only a loopback device. dir is the directory for the state of the hubs.
func RunFleet(ctx context.Context, dir string, o FleetOptions) ([]FleetRow, error) {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return nil, fmt.Errorf("loopback device: %w", err)
	}
	if rig.AvailableMemory() > ampleMemory {
		defer debug.SetGCPercent(debug.SetGCPercent(300))
	}
	r := &fleetRun{FleetOptions: o, dir: dir}
	for _, phase := range []func(context.Context) error{r.many, r.coldStart, r.sustained} {
		if err := phase(ctx); err != nil {
			return r.rows, err
		}
	}
	return r.rows, nil
}

// percentile returns the value below which the given share of the values is.
func percentile(values []time.Duration, share float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(int(float64(len(values))*share), len(values)-1)]
}
