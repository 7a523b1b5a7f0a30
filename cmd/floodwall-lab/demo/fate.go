// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// Fate describes what happened to the packets on the server's two devices while Floodwall's policy was in force. The numbers are counters of the
// devices' driver, which knows nothing of Floodwall.
type Fate struct {
	Flood   Packets `json:"flood"`   // packets of the flood; the policy forbids all of them
	Clients Packets `json:"clients"` // packets of the clients; the policy allows all of them

	// Dropped is the number of packets that the driver dropped since the policy was attached. Counted is the number of dropped packets by Floodwall's
	// own counters.
	Dropped uint64 `json:"dropped"`
	Counted uint64 `json:"counted"`
}

// Packets describes what happened to the packets that a device's receive thread took from its queue.
type Packets struct {
	Arrived uint64 `json:"arrived"`
	Dropped uint64 `json:"dropped"` // in the driver
	Passed  uint64 `json:"passed"`  // to the network stack
}

// wireCounts has the driver's counters of the two devices, for the flood and for the clients.
type wireCounts struct{ flood, clients lab.DriverCounts }

func (s *scene) driverCounts() (c wireCounts, err error) {
	if c.flood, err = s.flood.server.DriverCounts(); err != nil {
		return c, err
	}
	c.clients, err = s.clients.server.DriverCounts()
	return c, err
}

func (c wireCounts) dropped() uint64 { return c.flood.Dropped + c.clients.Dropped }

// After the end of the flood and the clients, the receive threads take the last packets from their queues. The counters are read every
// settleInterval. They are final when they no longer change, or after settleTime.
const (
	settleInterval = 20 * time.Millisecond
	settleTime     = 5 * time.Second
)

// settle waits until all packets were handled, and returns their fate. The parameter bare has the driver's counters before the policy was applied,
// when nothing was dropped. The parameter applied has the counters at the time when the policy was in force.
func (s *scene) settle(ctx context.Context, bare, applied wireCounts) (f Fate, err error) {
	for end := time.Now().Add(settleTime); ; {
		last, err := s.driverCounts()
		if err != nil {
			return f, err
		}
		status, err := s.status()
		if err != nil {
			return f, err
		}
		now, err := s.driverCounts()
		if err != nil {
			return f, err
		}
		f = Fate{
			Flood: packets(now.flood.Since(applied.flood)), Clients: packets(now.clients.Since(applied.clients)),
			Dropped: now.dropped() - bare.dropped(), Counted: reading{drops: drops(status)}.dropped(),
		}
		if now == last && f.Dropped == f.Counted || time.Now().After(end) {
			return f, nil
		}
		select {
		case <-ctx.Done():
			return f, ctx.Err()
		case <-time.After(settleInterval):
		}
	}
}

func packets(c lab.DriverCounts) Packets { return Packets{c.Received, c.Dropped, c.Passed()} }
