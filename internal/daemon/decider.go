package daemon

import "time"

// Conditions for moving rules while a policy runs. A sample is taken every second, so an attack has its rule moved within four seconds of
// its start.
const (
	sampleEvery = time.Second
	leastShare  = 0.05             // what a move saves, of what filtering costs at the moment
	leastCPU    = 0.002            // and of a CPU: what is less is not worth a change
	samplesHeld = 2                // in a row that say so
	leastDwell  = 2 * time.Second  // for which rules stay where they are
	mostMoves   = 6                // one after the other
	moveAgain   = 10 * time.Second // in which one more move is allowed: so six a minute in the long run
	restAfter   = time.Minute      // no move after one that failed
)

// offer is the placement that a sample favours: what it saves, and what filtering costs without it, as shares of a CPU.
type offer struct {
	saves, costs float64
	must         bool // verdicts depend on it: where rules are, packets do not come to them as they arrived
}

func (o offer) worthwhile() bool {
	return o.must || o.saves >= leastCPU && o.saves >= leastShare*o.costs
}

// decider decides when rules move. It uses no clock but the time of its arguments.
type decider struct {
	held  int       // samples in a row that had a worthwhile offer
	since time.Time // the last move, or when the policy was applied
	rests time.Time // until when nothing moves
	moves float64   // that are left
	added time.Time // up to when moves were added; zero before the first sample
}

// decide takes the offer of a sample and says whether to move now.
func (d *decider) decide(now time.Time, o offer) bool {
	d.refill(now)
	if !o.worthwhile() {
		d.held = 0
		return false
	}
	d.held++
	return d.held >= samplesHeld && now.Sub(d.since) >= leastDwell && !now.Before(d.rests) && d.moves >= 1
}

// refill adds the moves that have become possible.
func (d *decider) refill(now time.Time) {
	if d.added.IsZero() {
		d.moves = mostMoves
	} else {
		d.moves = min(mostMoves, d.moves+now.Sub(d.added).Seconds()/moveAgain.Seconds())
	}
	d.added = now
}

// moved notes a move.
func (d *decider) moved(now time.Time) {
	d.since, d.held = now, 0
	d.moves--
}

// failed notes a move that was not possible.
func (d *decider) failed(now time.Time) {
	d.rests, d.held = now.Add(restAfter), 0
}
