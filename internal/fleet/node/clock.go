package node

import "time"

// clock is the time of the hub, from its messages. They are late, never early: of those of the last half minute to minute, the one that was
// least late counts. Messages that all wait on a busy machine, thousands at once, do not set it back.
// It goes on with the monotonic clock, so a change of this host's own time moves no end of a ban.
type clock struct {
	least [2]time.Duration // differences to the local clock of the messages that were least late: of this span and of the one before
	spans int              // that have begun, 2 at most
	began time.Time        // this span
	base  time.Time        // of this host, with its monotonic part
}

// clockSpan is for how long a message counts at least. A hub's clock that is set back is followed after twice that.
const clockSpan = 30 * time.Second

// heard notes the hub's time in a message that arrived now.
func (c *clock) heard(hub time.Time) { c.heardAt(hub, time.Now()) }

func (c *clock) heardAt(hub, now time.Time) {
	if c.base.IsZero() {
		c.base = now
	}
	ahead := hub.Sub(c.base.Add(now.Sub(c.base)))
	if c.spans == 0 || now.Sub(c.began) >= clockSpan {
		c.least[1], c.least[0] = c.least[0], ahead
		c.spans, c.began = min(c.spans+1, len(c.least)), now
		return
	}
	c.least[0] = max(c.least[0], ahead)
}

// known reports whether a hub was heard.
func (c *clock) known() bool { return c.spans > 0 }

// offset is how far the hub's clock is ahead.
func (c *clock) offset() time.Duration {
	if c.spans == len(c.least) {
		return max(c.least[0], c.least[1])
	}
	return c.least[0]
}

// now is the time in the fleet: this host's own until a hub was heard.
func (c *clock) now() time.Time { return c.at(time.Now()) }

func (c *clock) at(now time.Time) time.Time {
	if !c.known() {
		return now
	}
	return c.base.Add(now.Sub(c.base)).Add(c.offset()).Round(0)
}
