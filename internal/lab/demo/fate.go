package demo

import (
	"context"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// Fate is what became of the packets on the server's two devices while Floodwall's policy was in force, by the counters of
// the devices' driver, which know nothing of Floodwall.
type Fate struct {
	Flood   Packets `json:"flood"`   // of which the policy forbids all
	Clients Packets `json:"clients"` // of which it allows all

	// Dropped is what the driver dropped from the moment when the policy was attached, and Counted what Floodwall's own
	// counters say.
	Dropped uint64 `json:"dropped"`
	Counted uint64 `json:"counted"`
}

// Packets is what became of the packets that a device's receive thread took from its queue.
type Packets struct {
	Arrived uint64 `json:"arrived"`
	Dropped uint64 `json:"dropped"` // in the driver
	Passed  uint64 `json:"passed"`  // to the network stack
}

// wireCounts is what the driver has counted of flood and clients.
type wireCounts struct{ flood, clients lab.DriverCounts }

func (s *scene) driverCounts() (c wireCounts, err error) {
	if c.flood, err = s.flood.server.DriverCounts(); err != nil {
		return c, err
	}
	c.clients, err = s.clients.server.DriverCounts()
	return c, err
}

func (c wireCounts) dropped() uint64 { return c.flood.Dropped + c.clients.Dropped }

// Once flood and clients have ended, the counters settle when the receive threads have taken the last packets from their
// queues. They are read every settleInterval, and are final at the latest after settleTime.
const (
	settleInterval = 20 * time.Millisecond
	settleTime     = 5 * time.Second
)

// settle waits until all packets have met their fate. bare is what the driver had counted before the policy was applied,
// when nothing was dropped, and applied what it had when the policy was in force.
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
