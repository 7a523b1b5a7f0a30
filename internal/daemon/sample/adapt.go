package sample

import (
	"time"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// How many samples are taken where the policy looks for attacks. In a second there are enough to see what a flood is made of, and the
// daemon needs some percent of a core for them.
const (
	adaptEvery  = 100 * time.Millisecond
	samplesWant = 1500 // a second in each direction; a share is changed when there are twice as many, or half
)

// adaption adapts the shares of the traffic that are sampled to its rate. The program itself halves a share that brings far too much
// (bpf/sample.h).
type adaption struct {
	on       bool
	since    time.Time
	arriving int // samples since then
	leaving  int
}

func (a *adaption) count(leaving bool) {
	if leaving {
		a.leaving++
	} else {
		a.arriving++
	}
}

// adapt changes the shares when it is time to. It returns of how many packets that arrive one is sampled; 0 while that stays.
func (a *adaption) adapt(c *Capture, now time.Time) uint32 {
	span := now.Sub(a.since)
	if !a.on || span < adaptEvery || c.samples == nil {
		return 0
	}
	shares, err := c.samples.Shares()
	if err == nil {
		shares.Arriving = adapted(shares.Arriving, float64(a.arriving)/span.Seconds())
		shares.Leaving = adapted(shares.Leaving, float64(a.leaving)/span.Seconds())
		err = c.samples.SetShares(shares)
	}
	*a = adaption{on: true, since: now}
	if err != nil {
		return 0
	}
	return max(1, uint32((1<<32)/uint64(max(1, shares.Arriving))))
}

// adapted is the share after one that brought so many samples a second.
func adapted(share uint32, brought float64) uint32 {
	all := image.Share(1)
	switch {
	case brought > 2*samplesWant:
		return max(1, share/2) // the program stops at one in a million
	case brought < samplesWant/2 && share > all/2:
		return all
	case brought < samplesWant/2:
		return 2 * share
	}
	return share
}
