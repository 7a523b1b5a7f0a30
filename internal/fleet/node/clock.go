package node

import (
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// clock is the time of the fleet: the median of the hubs' clocks, so that one wrong hub of three does not change it. It goes on with the
// monotonic clock, so a change of this host's own time moves no end of a ban.
type clock struct {
	base  time.Time     // of this host, with its monotonic part
	ahead time.Duration // how far the fleet's time is ahead of it
	hubs  map[uint64]*hubClock
}

// hubClock is how far the clock of a hub is ahead. Messages are late, never early. So the greatest difference of the last 30 to 60 s counts:
// messages that all wait on a busy machine, thousands at once, do not set the time back.
type hubClock struct {
	greatest [2]time.Duration // of this span and of the one before
	spans    int              // that have started, 2 at most
	began    time.Time        // this span
	last     time.Time        // message
	messages int              // up to enough
	leaps    int              // messages in a row that are further ahead than merge.Ahead
}

// clockSpan is for how long a message counts at least. A hub's clock that is set back is followed after twice that. A hub that was not heard
// for so long does not count beside others.
const clockSpan = 30 * time.Second

// enough is how many messages of a hub in a row confirm that its clock has leapt ahead. The first ones count at once: they may have been late.
const enough = 3

// mostHubs bounds the memory for hubs that a hub which lies may invent.
const mostHubs = 64

// anyHub sends messages that do not say which hub they are from. They count until a beat is heard.
const anyHub = 0

// heard notes the time in a message of a hub that arrived now. It reports whether the fleet's time has leapt by more than merge.Ahead.
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
			// The first message after a partition waits behind all that was held back. It does not set the time back.
			c.hubs[hub].greatest[0], c.hubs[hub].spans, c.hubs[hub].began = c.ahead, 1, now
		}
	}
	c.hubs[hub].take(at.Sub(c.base.Add(now.Sub(c.base))), now)
	before := c.ahead
	c.ahead = c.median()
	return known && (c.ahead-before).Abs() > wire.Ahead
}

// median is that of the hubs' differences. Of an even number of hubs, the one of the two middle ones counts that is nearer to the time as it is.
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

// known reports whether a hub was heard.
func (c *clock) known() bool { return len(c.hubs) > 0 }

// now is the time in the fleet: this host's own until a hub was heard.
func (c *clock) now() time.Time { return c.at(time.Now()) }

func (c *clock) at(now time.Time) time.Time {
	if !c.known() {
		return now
	}
	return c.base.Add(now.Sub(c.base)).Add(c.ahead).Round(0)
}
