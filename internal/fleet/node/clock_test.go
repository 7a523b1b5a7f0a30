package node

import (
	"testing"
	"time"
)

// TestClock has a hub whose clock is 40 s ahead. Messages that come late, also a hundred in a row, do not set the time back. When the hub's
// clock is set back, the node follows within a minute.
func TestClock(t *testing.T) {
	t.Parallel()
	var c clock
	start := time.Now()
	if is := c.at(start); !is.Equal(start) {
		t.Errorf("before a hub was heard, the time is %v ahead", is.Sub(start))
	}
	for i, test := range []struct {
		after, late, ahead time.Duration // of the message
		times              int
		want               time.Duration // how far the time of the fleet is ahead then
	}{
		{0, 3 * time.Second, 40 * time.Second, 1, 37 * time.Second}, // nothing better is known
		{time.Second, 0, 40 * time.Second, 1, 40 * time.Second},
		{2 * time.Second, 5 * time.Second, 40 * time.Second, 100, 40 * time.Second},
		{31 * time.Second, 5 * time.Second, 40 * time.Second, 100, 40 * time.Second},
		{40 * time.Second, 0, -10 * time.Second, 1, 40 * time.Second},
		{62 * time.Second, 0, -10 * time.Second, 1, 35 * time.Second},
		{93 * time.Second, 0, -10 * time.Second, 1, -10 * time.Second},
	} {
		now := start.Add(test.after)
		for range test.times {
			c.heardAt(now.Round(0).Add(test.ahead-test.late), now)
		}
		if is := c.at(now).Sub(now.Round(0)); is.Round(time.Millisecond) != test.want {
			t.Errorf("step %d: the time is %v ahead, want %v", i, is, test.want)
		}
	}
}
