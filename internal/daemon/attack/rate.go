// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"math"
	"slices"
	"time"
)

// How the usual rate and the bound are computed.
const (
	usualSeconds = 600 // the usual rate is the median of this many quiet seconds
	leastSeconds = 10  // with fewer seconds there is no bound
	factor       = 3.0 // the bound is at least this many times the usual rate
	spreads      = 8.0 // and lies at least this many times the spread above the usual rate
	beginSeconds = 3   // consecutive seconds above the bound that begin an attack

	longest = 6 * time.Hour // a rate that lasts longer counts as usual
)

// change is the effect of a second on the state of a rate.
type change int

const (
	nothing change = iota
	begins
	ends
	lasts // the attack has lasted too long: its rate counts as usual from now on
)

// rate decides from the packets of each second when an attack begins and ends. The usual rate is the median of the last ten minutes of quiet seconds,
// and its spread is their median absolute deviation. An attack of any height changes these only if it takes half of that time. An attack begins with
// three consecutive seconds above the bound. It ends with quiet seconds below half of the bound that it exceeded. So a rate near the bound does not
// begin and end attacks again and again.
type rate struct {
	least float64       // packets a second below which nothing is an attack
	quiet time.Duration // quiet time that ends an attack

	usual  []float64 // packets of each quiet second
	at     int       // index of the next second in usual, when usual is full
	above  int       // consecutive seconds above the bound
	below  int       // consecutive quiet seconds during an attack
	bound  float64   // the bound that the attack exceeded; 0 without an attack
	lasted int       // seconds of the attack
}

// level returns the usual rate, and the bound above which an attack begins. The bound is +Inf while too few seconds are known.
func (r *rate) level() (usual, bound float64) {
	if len(r.usual) == 0 {
		return 0, math.Inf(1)
	}
	usual = median(r.usual)
	deviations := make([]float64, len(r.usual))
	for i, v := range r.usual {
		deviations[i] = math.Abs(v - usual)
	}
	if len(r.usual) < leastSeconds {
		return usual, math.Inf(1)
	}
	const sigma = 1.4826 // standard deviation of a normal distribution, in median absolute deviations
	return usual, max(r.least, factor*usual, usual+spreads*sigma*median(deviations))
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

// add adds the packets of a second. When the result is that an attack may begin, the caller must call begin or dismiss.
func (r *rate) add(packets float64) change {
	if r.bound > 0 {
		return r.during(packets)
	}
	_, bound := r.level()
	if packets <= bound {
		r.above = 0
		r.learn(packets)
		return nothing
	}
	if r.above++; r.above < beginSeconds {
		return nothing
	}
	return begins
}

// dismiss records that the last second, which was above the bound, was no attack. Its rate is learned as usual.
func (r *rate) dismiss(packets float64) {
	r.above = 0
	r.learn(packets)
}

// calm reports whether the last second of an attack was quiet: a pause, or the time after the attack.
func (r *rate) calm() bool { return r.below > 0 }

// begin starts an attack that exceeded a bound.
func (r *rate) begin(bound float64) { r.bound, r.above, r.below, r.lasted = bound, 0, 0, 0 }

// during adds the packets of a second during an attack.
func (r *rate) during(packets float64) change {
	r.lasted++
	if packets < r.bound/2 {
		r.below++
	} else {
		r.below = 0
	}
	switch {
	case float64(r.below) >= r.quiet.Seconds():
		r.bound = 0
		return ends
	case r.lasted >= int(longest.Seconds()):
		*r = rate{least: r.least, quiet: r.quiet}
		return lasts
	}
	return nothing
}

// learn learns from a quiet second.
func (r *rate) learn(packets float64) {
	if len(r.usual) < usualSeconds {
		r.usual = append(r.usual, packets)
		return
	}
	r.usual[r.at] = packets
	r.at = (r.at + 1) % usualSeconds
}
