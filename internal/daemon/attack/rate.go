package attack

import (
	"math"
	"slices"
	"time"
)

// How the usual rate is known, and what is above it.
const (
	usualSeconds = 600 // quiet seconds that the usual rate is the median of
	leastSeconds = 10  // with fewer nothing is above it
	factor       = 3.0 // times the usual rate,
	spreads      = 8.0 // and so many times its spread above it
	beginSeconds = 3   // in a row above the bound begin an attack

	longest = 6 * time.Hour // a rate that lasts longer is taken for usual
)

// change is what a second tells.
type change int

const (
	nothing change = iota
	begins
	ends
	lasts // for too long to be an attack: the rate is the usual one from now on
)

// rate decides when an attack begins and ends, from the packets of each second. The usual rate is the median of the last ten minutes of quiet
// seconds, and its spread is their median absolute deviation: neither follows an attack, however high, unless that is half of the time. An
// attack begins with three seconds in a row above the bound, and ends with quiet seconds below half of the bound that it exceeded: so a rate
// near the bound does not begin and end it again and again.
type rate struct {
	least float64       // packets a second below which nothing is an attack
	quiet time.Duration // that ends an attack

	usual  []float64 // packets of quiet seconds
	at     int       // where the next one goes, once there are usualSeconds
	above  int       // seconds in a row above the bound
	below  int       // seconds in a row that are quiet again, during an attack
	bound  float64   // that was exceeded, during an attack; 0 otherwise
	lasted int       // seconds of the attack
}

// level is the usual rate, and the bound above which an attack begins: +Inf while too little is known.
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
	const sigma = 1.4826 // of a normal distribution, in median absolute deviations
	return usual, max(r.least, factor*usual, usual+spreads*sigma*median(deviations))
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

// add takes the packets of a second. Once it says that an attack may begin, begin or dismiss is to be called.
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

// dismiss has the last second, which was above the bound, be no attack: it teaches what is usual.
func (r *rate) dismiss(packets float64) {
	r.above = 0
	r.learn(packets)
}

// calm reports whether the last second of an attack was a quiet one, which is none of the attack's own: a pause, or the time after it.
func (r *rate) calm() bool { return r.below > 0 }

// begin has an attack go on that exceeded a bound.
func (r *rate) begin(bound float64) { r.bound, r.above, r.below, r.lasted = bound, 0, 0, 0 }

// during takes the packets of a second of an attack.
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

// learn notes a quiet second.
func (r *rate) learn(packets float64) {
	if len(r.usual) < usualSeconds {
		r.usual = append(r.usual, packets)
		return
	}
	r.usual[r.at] = packets
	r.at = (r.at + 1) % usualSeconds
}
