package demo

import (
	"context"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/engine/ban"
)

// howMany is the number of the senders.
const howMany = 8

// seen is when each ban was first seen at each node.
type seen [nodes]map[netip.Prefix]time.Time

// bans lists which senders a node has banned.
func (n *node) bans(ctx context.Context) (list []ban.Blocked, err error) {
	err = n.lab.Do(func() (err error) {
		list, err = n.instance.Blocked(ctx, "")
		return err
	})
	return list, err
}

// awaitBans waits until all senders are banned at all nodes, and notes when each ban was seen. The first node is asked first each time:
// so times from it to others are too long rather than too short, by less than 50 ms on a quiet machine.
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

// first is when the first node had its first ban.
func (s seen) first() (t time.Time) {
	for _, at := range s[0] {
		if t.IsZero() || at.Before(t) {
			t = at
		}
	}
	return t
}

// longest is the longest that a ban took from the first node to the last one.
func (s seen) longest() (d time.Duration) {
	for p, at := range s[0] {
		for _, other := range s[1:] {
			d = max(d, other[p].Sub(at))
		}
	}
	return d
}

// awaitLifts waits until no node has a ban.
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

// judged waits until packets that met a node before its bans are out of its receive thread: that handles them in order, at most 256 wait
// in its queue (kernel drivers/net/veth.c, VETH_RING_SIZE), and 64 at a time are on the way to the stack.
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
