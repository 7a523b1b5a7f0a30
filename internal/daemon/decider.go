// SPDX-License-Identifier: Apache-2.0

package daemon

import "time"

// Conditions for moving rules while a policy runs. A sample is taken every second. So rules are moved within four seconds of the start of an attack.
const (
	sampleEvery = time.Second
	leastShare  = 0.05             // the least saving of a move, as a share of the present cost of filtering
	leastCPU    = 0.002            // the least saving of a move, as a share of a CPU
	samplesHeld = 2                // consecutive samples that must favour a move
	leastDwell  = 2 * time.Second  // the least time between two moves
	mostMoves   = 6                // moves that may follow one another directly
	moveAgain   = 10 * time.Second // after each such time one more move is allowed: in the long run six a minute
	restAfter   = time.Minute      // no move for this long after a move that failed
)

// offer is the placement that costs least according to a sample. saves and costs are shares of a CPU: the saving of the placement, and the present
// cost of filtering.
type offer struct {
	saves, costs float64
	must         bool // the move is needed for correct verdicts: packets reach the present hook changed
}

func (o offer) worthwhile() bool {
	return o.must || o.saves >= leastCPU && o.saves >= leastShare*o.costs
}

// decider decides when rules move. The only clock that it uses is the time in its arguments.
type decider struct {
	held  int       // consecutive samples that had a worthwhile offer
	since time.Time // time of the last move, or when the policy was applied
	rests time.Time // no move before this time
	moves float64   // moves that are allowed now
	added time.Time // when refill last added moves; zero before the first sample
}

// decide takes the offer of a sample and reports whether to move the rules now.
func (d *decider) decide(now time.Time, o offer) bool {
	d.refill(now)
	if !o.worthwhile() {
		d.held = 0
		return false
	}
	d.held++
	return d.held >= samplesHeld && now.Sub(d.since) >= leastDwell && !now.Before(d.rests) && d.moves >= 1
}

// refill adds the moves that have become allowed since the last call.
func (d *decider) refill(now time.Time) {
	if d.added.IsZero() {
		d.moves = mostMoves
	} else {
		d.moves = min(mostMoves, d.moves+now.Sub(d.added).Seconds()/moveAgain.Seconds())
	}
	d.added = now
}

// moved records a move.
func (d *decider) moved(now time.Time) {
	d.since, d.held = now, 0
	d.moves--
}

// failed records a move that failed.
func (d *decider) failed(now time.Time) {
	d.rests, d.held = now.Add(restAfter), 0
}
