package attack

import (
	"time"
)

// The times of a load.
const (
	tenth      = 100 * time.Millisecond
	tenths     = 20 // that are kept: two seconds
	oneSecond  = 10
	riseTenths = 5  // above the bound on average, and
	riseTicks  = 3  // so many times in a row, before it counts as risen
	riseLeast  = 25 // samples in them: fewer say nothing

	hoursOfWeek = 168
	hourMemory  = 3600 // seconds of an hour of the week that its rate is the mean of, older ones less and less
	ratioMemory = 600  // likewise, of the share that is answered
)

// mean is that of seconds of an hour of the week.
type mean struct {
	Mean    float64 `json:"mean"`
	Seconds int     `json:"seconds"`
}

func (m *mean) add(v float64) {
	m.Seconds = min(m.Seconds+1, hourMemory)
	m.Mean += (v - m.Mean) / float64(m.Seconds)
}

// load is what comes to one place, by samples: to a service, or to the whole host. Its rate in quiet times is known by the last minutes and by
// the hour of the week, and so is how much leaves in answer.
type load struct {
	name string
	rate rate

	at       int64           // the tenth of the latest packet
	in, out  [tenths]float64 // packets of each tenth, by the samples that stand for them
	familiar [tenths]float64 // of those that came: from senders that are no strangers
	samples  [tenths]int     // of those that came
	hours    [hoursOfWeek]mean
	usualIn  float64 // packets of quiet seconds, with the weight of ratioMemory,
	usualOut float64 // those that left,
	usualOld float64 // and those that came from senders that are no strangers

	high    int       // ticks in a row above the bound
	risen   time.Time // since when; zero: it has not
	crowded time.Time // when it was last told that a crowd is here
}

// epoch is what tenths are counted from, by the clock that nobody sets: long before any sample.
var epoch = time.Now().Add(-20 * 365 * 24 * time.Hour)

// move begins the tenths up to now.
func (l *load) move(now time.Time) int {
	to := int64(now.Sub(epoch) / tenth)
	for l.at = max(l.at, to-tenths); l.at < to; {
		l.at++
		i := l.at % tenths
		l.in[i], l.out[i], l.familiar[i], l.samples[i] = 0, 0, 0, 0
	}
	return int(to % tenths)
}

// arrives notes a sample.
func (l *load) arrives(now time.Time, packets float64, familiar bool) {
	i := l.move(now)
	l.in[i] += packets
	l.samples[i]++
	if familiar {
		l.familiar[i] += packets
	}
}

func (l *load) leaves(now time.Time, packets float64) { l.out[l.move(now)] += packets }

// last sums the last tenths, without the one that goes on.
func last[T int | float64](l *load, of *[tenths]T, n int) (sum T) {
	for i := range int64(n) {
		sum += of[(l.at-1-i+2*tenths)%tenths]
	}
	return sum
}

// perSecond is the rate of the last tenths.
func (l *load) perSecond(of *[tenths]float64, n int) float64 {
	return last(l, of, n) / (time.Duration(n) * tenth).Seconds()
}

// hour is that of the week.
func hour(now time.Time) int { return int(now.Weekday())*24 + now.Hour() }

// level is the usual rate and the bound above which it has risen: by the last minutes, or by the hour of the week when that is more.
func (l *load) level(now time.Time) (usual, bound float64) {
	usual, bound = l.rate.level()
	if at := l.hours[hour(now)].Mean; at > usual {
		usual, bound = at, max(bound, factor*at)
	}
	return usual, bound
}

// tick looks whether the load has risen, and reports it while it lasts.
func (l *load) tick(now time.Time) bool {
	l.move(now)
	if !l.above(now) {
		l.high, l.risen = 0, time.Time{}
		return false
	}
	if l.high++; l.high == riseTicks {
		l.risen = now
	}
	return l.high >= riseTicks
}

// above reports whether the last tenths are above the bound, by samples enough. The bound takes longer to tell.
func (l *load) above(now time.Time) bool {
	if last(l, &l.samples, riseTenths) < riseLeast {
		return false
	}
	_, bound := l.level(now)
	return l.perSecond(&l.in, riseTenths) > bound
}

// second takes a second of a load that has no attack, or one that goes on. The packets are those that were counted, or that samples stand for.
func (l *load) second(now time.Time, packets float64) change {
	turn := l.rate.add(packets)
	if turn == nothing && l.rate.bound == 0 && l.rate.above == 0 {
		l.learn(now, packets)
	}
	return turn
}

// learn notes a quiet second.
func (l *load) learn(now time.Time, in float64) {
	l.hours[hour(now)].add(in)
	const keeps = 1 - 1.0/ratioMemory
	l.usualIn = keeps*l.usualIn + in
	l.usualOut = keeps*l.usualOut + l.perSecond(&l.out, oneSecond)
	l.usualOld = keeps*l.usualOld + l.perSecond(&l.familiar, oneSecond)
}

// ratios are how many packets leave for each that arrives in quiet times, and how many of these are from senders that are no strangers; 1 while
// that is not known.
func (l *load) ratios() (out, familiar float64) {
	if l.usualIn < leastSeconds {
		return 1, 1
	}
	return l.usualOut / l.usualIn, l.usualOld / l.usualIn
}
