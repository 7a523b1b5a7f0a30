// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// clock is the time of the fleet: the median of the hubs' clocks. So one wrong clock among three hubs does not change the time. Between messages it
// advances with the monotonic clock, so setting this host's clock does not move the end of any ban.
type clock struct {
	base  time.Time     // this host's time, with its monotonic part
	ahead time.Duration // how far the fleet's time is ahead of base
	hubs  map[uint64]*hubClock
}

// hubClock measures how far the clock of a hub is ahead of base. Messages can be late but never early, so the greatest difference of the last 30 to
// 60 s is used. So thousands of messages that wait on a busy machine do not set the time back.
type hubClock struct {
	greatest [2]time.Duration // the greatest difference in this time span and in the previous one
	spans    int              // time spans that have started, at most 2
	began    time.Time        // start of this time span
	last     time.Time        // time of the last message
	messages int              // number of messages, counted up to enough
	leaps    int              // consecutive messages whose time is ahead by more than wire.Ahead
}

// clockSpan is the least time for which a message counts. When a hub's clock is set back, the fleet's time follows after twice that time. A hub that
// was silent for that time no longer counts if there are other hubs.
const clockSpan = 30 * time.Second

// enough is the number of consecutive messages of a hub that prove a leap of its clock. Before that many messages have been received, a leap counts
// at once, because the first messages may have been late.
const enough = 3

// mostHubs limits the memory, because a hub can send messages in the name of hubs that do not exist.
const mostHubs = 64

// anyHub is the hub of messages that do not name their hub. These messages count until the first pulse of a hub.
const anyHub = 0

// heard records the time in a message of a hub that arrives now. It reports whether the fleet's time has leapt by more than wire.Ahead.
func (c *clock) heard(hub uint64, at time.Time) (leapt bool) { return c.heardAt(hub, at, time.Now()) }

func (c *clock) heardAt(hub uint64, at, now time.Time) (leapt bool) {
	known := c.known()
	if !known {
		c.base, c.hubs = now, map[uint64]*hubClock{}
	}
	if hub == anyHub && known && c.hubs[anyHub] == nil {
		return false
	}
	if hub != anyHub {
		delete(c.hubs, anyHub)
	}
	for id, h := range c.hubs {
		if id != hub && now.Sub(h.last) >= clockSpan {
			delete(c.hubs, id)
		}
	}
	if c.hubs[hub] == nil {
		if len(c.hubs) >= mostHubs {
			return false
		}
		c.hubs[hub] = &hubClock{}
		if known {
			// The first message after a partition was delayed behind other messages. It does not set the time back.
			c.hubs[hub].greatest[0], c.hubs[hub].spans, c.hubs[hub].began = c.ahead, 1, now
		}
	}
	c.hubs[hub].take(at.Sub(c.base.Add(now.Sub(c.base))), now)
	before := c.ahead
	c.ahead = c.median()
	return known && (c.ahead-before).Abs() > wire.Ahead
}

// median returns the median of the hubs' differences. For an even number of hubs, it returns the one of the two middle values that is nearer to the
// present time.
func (c *clock) median() time.Duration {
	var all []time.Duration
	for _, h := range c.hubs {
		all = append(all, h.ahead())
	}
	slices.Sort(all)
	low, high := all[(len(all)-1)/2], all[len(all)/2]
	if (low - c.ahead).Abs() <= (high - c.ahead).Abs() {
		return low
	}
	return high
}

func (h *hubClock) take(ahead time.Duration, now time.Time) {
	h.last = now
	if h.messages == enough && ahead > h.ahead()+wire.Ahead {
		if h.leaps++; h.leaps < enough {
			return
		}
	}
	h.leaps, h.messages = 0, min(h.messages+1, enough)
	if h.spans == 0 || now.Sub(h.began) >= clockSpan {
		h.greatest[1], h.greatest[0] = h.greatest[0], ahead
		h.spans, h.began = min(h.spans+1, len(h.greatest)), now
		return
	}
	h.greatest[0] = max(h.greatest[0], ahead)
}

func (h *hubClock) ahead() time.Duration { return slices.Max(h.greatest[:h.spans]) }

// known reports whether any hub's time was ever received.
func (c *clock) known() bool { return len(c.hubs) > 0 }

// now returns the time of the fleet. Until a hub's time is received, it returns this host's time.
func (c *clock) now() time.Time { return c.at(time.Now()) }

func (c *clock) at(now time.Time) time.Time {
	if !c.known() {
		return now
	}
	return c.base.Add(now.Sub(c.base)).Add(c.ahead).Round(0)
}
