// SPDX-License-Identifier: Apache-2.0

package metrics

import "context"

var (
	fleetConnected = NewGauge("floodwall_fleet_connected", "1 while this node is connected to a hub of its fleet, 0 while it goes on by itself.")
	fleetEntries   = NewGauge("floodwall_fleet_entries", "Bans of other nodes that are in force on this host.")
	fleetCrowded   = NewGauge("floodwall_fleet_crowded", "Bans of other nodes that are not entered on this host, as those have their share of the set.")
	fleetWaiting   = NewGauge("floodwall_fleet_waiting", "Bans and lifts of this host that no hub has heard of yet.")
	fleetBans      = NewCounter("floodwall_fleet_bans_total",
		"Bans since the daemon started: of other nodes that were entered (in), and were not (refused); of this host that a hub has taken (out), and has not (rejected).",
		"direction")
	fleetNodes    = NewGauge("floodwall_fleet_nodes", "Nodes of the whole fleet that the hubs have heard of in the last 30 seconds.")
	fleetAttacked = NewGauge("floodwall_fleet_nodes_attacked", "Nodes of the whole fleet that are under attack.")
	fleetRate     = NewGauge("floodwall_fleet_packets_per_second", "Packets a second of the whole fleet, passed and dropped.", "verdict")
)

// FleetFigures are the figures of a node.
type FleetFigures struct {
	Connected                   bool
	Entries, Crowded, Waiting   int
	In, Refused, Out, Unwelcome uint64
	View                        *FleetView // nil: no hub has sent a view
}

// FleetView is the figures of the whole fleet. The rates are packets a second.
type FleetView struct {
	Nodes, Attacked int
	Passed, Dropped uint64
}

// Fleet returns the metrics of a node of a fleet. read returns nil while this host is in no fleet; then there are no metrics.
func Fleet(read func() *FleetFigures) Part {
	return Part{Families: []*Family{fleetConnected, fleetEntries, fleetCrowded, fleetWaiting, fleetBans, fleetNodes, fleetAttacked, fleetRate}, Read: func(_ context.Context, add Add) error {
		f := read()
		if f == nil {
			return nil
		}
		add(fleetConnected, truth(f.Connected))
		add(fleetEntries, float64(f.Entries))
		add(fleetCrowded, float64(f.Crowded))
		add(fleetWaiting, float64(f.Waiting))
		add(fleetBans, float64(f.In), "in")
		add(fleetBans, float64(f.Refused), "refused")
		add(fleetBans, float64(f.Out), "out")
		add(fleetBans, float64(f.Unwelcome), "rejected")
		if f.View != nil {
			add(fleetNodes, float64(f.View.Nodes))
			add(fleetAttacked, float64(f.View.Attacked))
			add(fleetRate, float64(f.View.Passed), "passed")
			add(fleetRate, float64(f.View.Dropped), "dropped")
		}
		return nil
	}}
}
