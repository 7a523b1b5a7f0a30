// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/engine/ban"
)

// howMany is the number of senders.
const howMany = 8

// seen has the time at which each ban was first seen, for each node.
type seen [nodes]map[netip.Prefix]time.Time

// bans returns the senders that a node has banned.
func (n *node) bans(ctx context.Context) (list []ban.Ban, err error) {
	err = n.lab.Do(func() (err error) {
		list, err = n.instance.Blocked(ctx, "")
		return err
	})
	return list, err
}

// awaitBans waits until all nodes have banned all senders. It records when each ban was first seen. In each round it reads the bans of the first node
// first. So the measured times from the first node to the others are rather too long than too short. On a quiet machine the error is less than 50 ms.
func (w *fleetShow) awaitBans(ctx context.Context) (at seen, err error) {
	for i := range at {
		at[i] = map[netip.Prefix]time.Time{}
	}
	err = w.site.until(ctx, "the bans of web-1 at all nodes", func() (bool, error) {
		whole := true
		for i, n := range w.site.nodes {
			list, err := n.bans(ctx)
			if err != nil {
				return false, err
			}
			now := time.Now()
			for _, b := range list {
				if _, known := at[i][b.Prefix]; !known {
					at[i][b.Prefix] = now
				}
			}
			whole = whole && len(at[i]) >= howMany
		}
		return whole, nil
	})
	return at, err
}

// first returns the time of the first ban at the first node.
func (s seen) first() (t time.Time) {
	for _, at := range s[0] {
		if t.IsZero() || at.Before(t) {
			t = at
		}
	}
	return t
}

// longest returns the longest time from a ban at the first node to the same ban at another node.
func (s seen) longest() (d time.Duration) {
	for p, at := range s[0] {
		for _, other := range s[1:] {
			d = max(d, other[p].Sub(at))
		}
	}
	return d
}

// awaitLifts waits until no node has a ban any more.
func (w *fleetShow) awaitLifts(ctx context.Context) error {
	return w.site.until(ctx, "the end of the bans at all nodes", func() (bool, error) {
		left := 0
		for _, n := range w.site.nodes {
			list, err := n.bans(ctx)
			if err != nil {
				return false, err
			}
			left += len(list)
		}
		return left == 0, nil
	})
}

// judged waits until the receive thread has handled all packets that arrived before the bans. The thread handles packets in order. At most 256
// packets are in its queue (kernel drivers/net/veth.c, VETH_RING_SIZE), and at most 64 are between the queue and the stack.
func (w *fleetShow) judged(ctx context.Context, n *node) error {
	before, err := n.uplink.DriverCounts()
	if err != nil {
		return err
	}
	return w.site.until(ctx, "further packets at "+n.name, func() (bool, error) {
		now, err := n.uplink.DriverCounts()
		return now.Received >= before.Received+512, err
	})
}
