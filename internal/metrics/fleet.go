package metrics

import "context"

var (
	fleetConnected = NewGauge("floodwall_fleet_connected", "1 while this node is connected to a hub of its fleet, 0 while it goes on by itself.")
	fleetEntries   = NewGauge("floodwall_fleet_entries", "Bans of other nodes that are in force on this host.")
	fleetWaiting   = NewGauge("floodwall_fleet_waiting", "Bans and lifts of this host that no hub has heard of yet.")
	fleetBans      = NewCounter("floodwall_fleet_bans_total",
		"Bans since the daemon started: of other nodes that were entered (in), and were not (refused); of this host that a hub has taken (out), and has not (rejected).",
		"direction")
)

// FleetFigures are the figures of a node.
type FleetFigures struct {
	Connected                   bool
	Entries, Waiting            int
	In, Refused, Out, Unwelcome uint64
}

// Fleet are the figures of a node of a fleet. read returns nil while this host is of no fleet: then there are none.
func Fleet(read func() *FleetFigures) Part {
	return Part{Families: []*Family{fleetConnected, fleetEntries, fleetWaiting, fleetBans}, Read: func(_ context.Context, add Add) error {
		f := read()
		if f == nil {
			return nil
		}
		add(fleetConnected, truth(f.Connected))
		add(fleetEntries, float64(f.Entries))
		add(fleetWaiting, float64(f.Waiting))
		add(fleetBans, float64(f.In), "in")
		add(fleetBans, float64(f.Refused), "refused")
		add(fleetBans, float64(f.Out), "out")
		add(fleetBans, float64(f.Unwelcome), "rejected")
		return nil
	}}
}
