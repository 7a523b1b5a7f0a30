// This file measures a fleet: three real hubs and many nodes in one process, with connections that are no sockets and enforcers that
// count. In: how many nodes and bans. Out: rows with a figure each, and whether it meets its bar.
//
// Read fleet.go first: Run does the phases in phases.go, each with a site of its own (site.go).

package experiment

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/lab/rig"
)

// FleetOptions say how much is measured.
type FleetOptions struct {
	Nodes     int           // of the phases with many nodes
	Few       int           // nodes of the phases with many bans
	Bans      int           // that a new node gets
	Rate      int           // bans a second
	Sustained time.Duration // of that rate
	Partition time.Duration
	Probes    int // bans whose way is timed
	Progress  io.Writer
}

// FleetRow is a figure. Bar is what it must not exceed, 0 when it has none.
type FleetRow struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Bar   float64 `json:"bar,omitempty"`
}

// Missed tells whether a row exceeds its bar.
func (r FleetRow) Missed() bool { return r.Bar > 0 && r.Value > r.Bar }

// fleetRun is what the phases share.
type fleetRun struct {
	FleetOptions
	dir  string
	rows []FleetRow
}

func (r *fleetRun) add(what string, value float64, unit string, bar float64) {
	r.rows = append(r.rows, FleetRow{what, value, unit, bar})
}

func (r *fleetRun) say(format string, args ...any) { fmt.Fprintf(r.Progress, format+"\n", args...) }

// ampleMemory is how many bytes free let the heap grow more between two collections. A thousand nodes in one process have a heap that none has alone,
// and collecting it takes the CPU from them when all change their records at once.
const ampleMemory = 16 << 30

// RunFleet measures, in a network namespace that has nothing but a loopback device. dir is for the state of the hubs.
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

// percentile is the value below which a share of the values is.
func percentile(values []time.Duration, share float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(int(float64(len(values))*share), len(values)-1)]
}
