package node

import "time"

// clock is the time of the hub, from its messages. They are late, never early: of the last ones the one that was least late counts.
// It goes on with the monotonic clock, so a change of this host's own time moves no end of a ban.
type clock struct {
	seen  [8]time.Duration // differences to the local clock
	count int
	base  time.Time // of this host, with its monotonic part
}

// heard notes the hub's time in a message that arrived now.
func (c *clock) heard(hub time.Time) {
	if c.base.IsZero() {
		c.base = time.Now()
	}
	c.seen[c.count%len(c.seen)] = hub.Sub(c.local())
	c.count++
}

// local is this host's time, as it was when the clock began, and gone on since.
func (c *clock) local() time.Time { return c.base.Add(time.Since(c.base)) }

// offset is how far the hub's clock is ahead.
func (c *clock) offset() (d time.Duration) {
	for i, s := range c.seen[:min(c.count, len(c.seen))] {
		if i == 0 || s > d {
			d = s
		}
	}
	return d
}

// now is the time in the fleet: this host's own until a hub was heard.
func (c *clock) now() time.Time {
	if c.count == 0 {
		return time.Now()
	}
	return c.local().Add(c.offset()).Round(0)
}
