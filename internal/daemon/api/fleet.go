package api

import (
	"context"

	"github.com/floodwall/floodwall/internal/fleet/node"
	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// FleetStatus is how this host stands in a fleet, and what the fleet sees.
type FleetStatus struct {
	Fleet *node.Status `json:"fleet"`          // null when it is of none
	View  *wire.View   `json:"view,omitempty"` // absent when no hub has said so for 30 seconds
}

func (c *Call) fleet(context.Context) (FleetStatus, error) {
	s, err := node.ReadStatus(c.parts.Host.State)
	all := FleetStatus{Fleet: s}
	if s != nil && c.parts.Fleet != nil {
		all.View = c.parts.Fleet()
	}
	return all, err
}
