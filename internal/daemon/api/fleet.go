// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"

	"github.com/floodwall/floodwall/internal/fleet/node"
	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// FleetStatus is the state of this host in its fleet, and the view of the fleet.
type FleetStatus struct {
	Fleet *node.Status `json:"fleet"`          // null when the host is in no fleet
	View  *wire.View   `json:"view,omitempty"` // absent when no hub has sent a view for 30 seconds
}

func (c *Call) fleet(context.Context) (FleetStatus, error) {
	s, err := node.ReadStatus(c.parts.Host.State)
	all := FleetStatus{Fleet: s}
	if s != nil && c.parts.Fleet != nil {
		all.View = c.parts.Fleet()
	}
	return all, err
}
