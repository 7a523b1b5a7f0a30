// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"time"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// The rate of samples for a policy with `detect`. A second must have enough samples to show the kinds of packets in a flood. The daemon needs a few
// percent of a CPU core to process them.
const (
	adaptEvery  = 100 * time.Millisecond
	samplesWant = 1500 // samples a second in each direction; the sampling rate is changed when there are more than twice or less than half as many
)

// adaption adapts the sampling rates to the traffic. The XDP program itself halves a rate that makes far too many samples (bpf/sample.h).
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

// adapt changes the sampling rates when a change is due. It returns the new n if one in n arriving packets is now sampled, and 0 without a change.
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

// adapted returns the next sampling rate. brought is the number of samples a second at the present rate.
func adapted(share uint32, brought float64) uint32 {
	all := image.Share(1)
	switch {
	case brought > 2*samplesWant:
		return max(1, share/2) // the program's lowest rate is one in a million
	case brought < samplesWant/2 && share > all/2:
		return all
	case brought < samplesWant/2:
		return 2 * share
	}
	return share
}
