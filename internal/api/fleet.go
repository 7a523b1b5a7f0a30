package api

import (
	"context"

	"github.com/floodwall/floodwall/internal/fleet/node"
)

// FleetStatus is how this host stands in a fleet.
type FleetStatus struct {
	Fleet *node.Status `json:"fleet"` // null when it is of none
}

func (c *Call) fleet(context.Context) (FleetStatus, error) {
	s, err := node.ReadStatus(c.parts.Host.State)
	return FleetStatus{s}, err
}
