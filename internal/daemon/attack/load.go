// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"time"
)

// Times and counts for the measurement of a load.
const (
	tenth      = 100 * time.Millisecond
	tenths     = 20 // number of tenths of a second that are kept: two seconds
	oneSecond  = 10
	riseTenths = 5  // a load has risen when its mean over this many tenths is above the bound
	riseTicks  = 3  // in this many consecutive ticks
	riseLeast  = 25 // with at least this many samples, because fewer prove nothing

	hoursOfWeek = 168
	hourMemory  = 3600 // number of seconds in the weighted mean of an hour of the week
	ratioMemory = 600  // number of seconds in the weighted mean of the share of answers
)

// mean is the mean rate of an hour of the week.
type mean struct {
	Mean    float64 `json:"mean"`
	Seconds int     `json:"seconds"`
}

func (m *mean) add(v float64) {
	m.Seconds = min(m.Seconds+1, hourMemory)
	m.Mean += (v - m.Mean) / float64(m.Seconds)
}

// load is the measured traffic to a service or to the whole host. The measurement is from samples. The usual rate is known from the last minutes and
// from the hour of the week. The usual number of answers is also known.
type load struct {
	name string
	rate rate

	at       int64           // the tenth of the latest packet
	in, out  [tenths]float64 // packets of each tenth, as estimated from samples
	familiar [tenths]float64 // arrived packets from senders that are no strangers
	returned [tenths]float64 // arrived packets from senders that count as known only because they sent more datagrams after an answer (standing returned)
	samples  [tenths]int     // samples of arrived packets
	hours    [hoursOfWeek]mean
	usualIn  float64 // packets that arrived in quiet seconds, weighted with ratioMemory
	usualOut float64 // packets that left, in the same way
	usualOld float64 // arrived packets from senders that are no strangers, in the same way

	usualEach float64 // packets a second of each sender in quiet times; 0: unknown

	high    int       // consecutive ticks above the bound
	risen   time.Time // when the load rose; zero: it has not risen
	began   time.Time // start of the first tenth above the usual; zero while the load is not above the bound
	crowded time.Time // when a crowd was last reported for this load
}

// epoch is the time from which tenths are counted, by the monotonic clock. It lies long before any sample.
var epoch = time.Now().Add(-20 * 365 * 24 * time.Hour)

// move advances the load to the tenth of now. New tenths have zero packets. It returns the index of the tenth.
func (l *load) move(now time.Time) int {
	to := int64(now.Sub(epoch) / tenth)
	for l.at = max(l.at, to-tenths); l.at < to; {
		l.at++
		i := l.at % tenths
		l.in[i], l.out[i], l.familiar[i], l.returned[i], l.samples[i] = 0, 0, 0, 0, 0
	}
	return int(to % tenths)
}

// tenthOf returns the index of the tenth of a time within the last two seconds.
func (l *load) tenthOf(at time.Time) int { return int(int64(at.Sub(epoch)/tenth) % tenths) }

// arrives adds a sample.
func (l *load) arrives(now time.Time, packets float64, of standing) {
	i := l.move(now)
	l.in[i] += packets
	l.samples[i]++
	l.vouch(i, packets, of)
}

// vouch adds packets to a past tenth, as packets of a sender that is no stranger.
func (l *load) vouch(i int, packets float64, of standing) {
	if of >= replied {
		l.familiar[i] += packets
	}
	if of == returned {
		l.returned[i] += packets
	}
}

func (l *load) leaves(now time.Time, packets float64) { l.out[l.move(now)] += packets }

// last returns the sum of the last n tenths, without the current one.
func last[T int | float64](l *load, of *[tenths]T, n int) (sum T) {
	for i := range int64(n) {
		sum += of[(l.at-1-i+2*tenths)%tenths]
	}
	return sum
}

// perSecond returns the rate over the last n tenths.
func (l *load) perSecond(of *[tenths]float64, n int) float64 {
	return last(l, of, n) / (time.Duration(n) * tenth).Seconds()
}

// hour returns the hour of the week.
func hour(now time.Time) int { return int(now.Weekday())*24 + now.Hour() }

// level returns the usual rate, and the bound above which the load counts as risen. Both are from the last minutes, or from the hour of the week if
// the rate of that hour is higher.
func (l *load) level(now time.Time) (usual, bound float64) {
	usual, bound = l.rate.level()
	if at := l.hours[hour(now)].Mean; at > usual {
		usual, bound = at, max(bound, factor*at)
	}
	return usual, bound
}

// tick reports whether the load has risen and is still above the bound. It is called each tenth of a second.
func (l *load) tick(now time.Time) bool {
	l.move(now)
	if !l.above(now) {
		l.high, l.risen, l.began = 0, time.Time{}, time.Time{}
		return false
	}
	if l.high == 0 {
		l.began = l.begin(now)
	}
	if l.high++; l.high == riseTicks {
		l.risen = now
	}
	return l.high >= riseTicks
}

// begin returns the start of the present rise. In the tenths before, the rate exceeded the usual rate by at most half of the distance to the bound.
func (l *load) begin(now time.Time) time.Time {
	usual, bound := l.level(now)
	most := (usual + (bound-usual)/2) * tenth.Seconds()
	first := int64(0)
	for i := int64(1); i < tenths && l.in[(l.at-i+tenths)%tenths] > most; i++ {
		first = i
	}
	return epoch.Add(time.Duration(l.at-first) * tenth)
}

// above reports whether the last tenths are above the bound, with enough samples. Samples are checked first, because the bound takes longer to
// compute.
func (l *load) above(now time.Time) bool {
	if last(l, &l.samples, riseTenths) < riseLeast {
		return false
	}
	_, bound := l.level(now)
	return l.perSecond(&l.in, riseTenths) > bound
}

// second adds the packets of a second. The number is from the counters, or estimated from samples.
func (l *load) second(now time.Time, packets float64) change {
	turn := l.rate.add(packets)
	if turn == nothing && l.rate.bound == 0 && l.rate.above == 0 {
		l.learn(now, packets)
	}
	return turn
}

// learn learns from a quiet second, in which `in` packets arrived.
func (l *load) learn(now time.Time, in float64) {
	l.hours[hour(now)].add(in)
	const keeps = 1 - 1.0/ratioMemory
	l.usualIn = keeps*l.usualIn + in
	l.usualOut = keeps*l.usualOut + l.perSecond(&l.out, oneSecond)
	l.usualOld = keeps*l.usualOld + l.perSecond(&l.familiar, oneSecond)
}

// sends learns how many packets each sender sends in a quiet second; 0: unknown.
func (l *load) sends(each float64) {
	switch {
	case each == 0:
	case l.usualEach == 0:
		l.usualEach = each
	default:
		l.usualEach += (each - l.usualEach) / ratioMemory * oneSecond
	}
}

// ratios returns two ratios for quiet times: how many packets leave for each that arrives, and the share of arriving packets from senders that are no
// strangers. Both are 1 while they are unknown.
func (l *load) ratios() (out, familiar float64) {
	if l.usualIn < leastSeconds {
		return 1, 1
	}
	return l.usualOut / l.usualIn, l.usualOld / l.usualIn
}
