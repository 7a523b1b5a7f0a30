package attack

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/sources/geo"
)

// The bounds of what is kept of one attack.
const (
	mostCaptured = 2000      // packets of the capture
	mostPassed   = 4000      // samples of the moment before an attack
	suggestedFor = time.Hour // for which a suggestion is to be taken for right

	leastVector = 0.05 // share of the samples that a kind must have,
	leastGrowth = 2    // and so many times its usual rate
	mostVectors = 8
)

// collecting is an attack that goes on.
type collecting struct {
	report   Report
	views    *operate.Views
	vectors  map[string]int
	usual    map[string]float64 // share of each kind of packets in quiet times; nil: not known
	seconds  float64            // in which samples were counted
	samples  int
	oneIn    uint32
	captured []sample.Sample
	joined   []*joined
	lost     uint64 // samples
	searching

	auto *automatic // nil while there is nothing that the daemon does by itself
}

func newCollecting(report Report, databases geo.Databases) *collecting {
	return &collecting{report: report, views: operate.NewViews(databases), vectors: map[string]int{}}
}

// count takes the counters of a second of the attack, which ended at a time.
func (c *collecting) count(t *operate.Top, end time.Time) {
	c.report.add(t, end)
	c.seconds += t.Seconds
}

// see takes a sample, and what is known of it. In a calm second it tells of the harm that automatic rules do, and nothing of the attack.
func (c *collecting) see(p sample.Sample, of *seen, calm bool) {
	if of != nil {
		c.auto.see(of)
	}
	if calm {
		return
	}
	var s suggest.Sample
	if of != nil {
		s = of.Sample
		c.views.AddRead(p, &s)
	} else if s = c.views.Add(p); s.Kind != packet.IP {
		return
	}
	c.samples++
	c.vectors[vectorOf(&s)]++
	c.captured = draw(c.captured, p, c.samples, mostCaptured)
}

// joined is a load that is a part of the attack.
type joined struct {
	load *load
	Part
}

// join has a load be a part of the attack.
func (c *collecting) join(l *load, v Verdict, f Facts) {
	part := Part{f, v, l.rate.bound}
	if i := slices.IndexFunc(c.joined, func(j *joined) bool { return j.load == l }); i >= 0 {
		c.joined[i].Part = part
	} else {
		c.joined = append(c.joined, &joined{l, part})
	}
	c.again()
	c.parts()
}

// judge judges a part anew, while it is above its bound.
func (j *joined) judge(t *traffic, now time.Time) {
	f := t.facts(j.load, now)
	if f.Packets <= j.Bound {
		return
	}
	if v := f.verdict(unclearFor); v != "" {
		j.Facts, j.Verdict = f, v
	}
}

// parts has the report show them.
func (c *collecting) parts() {
	c.report.Parts = nil
	for _, j := range c.joined {
		c.report.Parts = append(c.report.Parts, j.Part)
		c.peak(j.Packets)
	}
}

// peak raises the peak to a rate that samples tell. An attack is told of within tenths of a second, before the counters of its first second are read.
func (c *collecting) peak(packets float64) {
	if packets <= c.report.Peak.Packets {
		return
	}
	c.report.Peak.Packets = packets
	bytes := 0
	for i := range c.captured {
		bytes += c.captured[i].Length
	}
	if len(c.captured) > 0 {
		c.report.Peak.Bits = max(c.report.Peak.Bits, 8*packets*float64(bytes)/float64(len(c.captured)))
	}
}

// attacked reports whether any part is an attack for certain.
func (c *collecting) attacked() bool {
	return slices.ContainsFunc(c.joined, func(j *joined) bool { return j.Verdict == Attack })
}

// calm reports whether the last second was a quiet one, which is none of the attack's own: a pause, or the time after it.
func (c *collecting) calm() bool {
	return len(c.joined) > 0 && !slices.ContainsFunc(c.joined, func(j *joined) bool { return j.load.rate.bound > 0 && !j.load.rate.calm() })
}

// ended reports whether all parts are over.
func (c *collecting) ended() bool {
	return len(c.joined) > 0 && !slices.ContainsFunc(c.joined, func(j *joined) bool { return j.load.rate.bound > 0 })
}

// resume takes up the samples that a daemon before has kept of the attack. What became of them is not known, so sources are counted anew.
func (c *collecting) resume(before []sample.Sample) {
	c.searched = time.Now()
	c.report.Note = "the daemon was started again during the attack: sources are of the time since"
	for _, p := range before {
		s := suggest.NewSample(p.Frame, p.Length)
		c.samples++
		c.vectors[vectorOf(&s)]++
		c.captured = draw(c.captured, p, c.samples, mostCaptured)
	}
}

// draw is algorithm R (Vitter, "Random Sampling with a Reservoir", 1985), for the nth item.
func draw[T any](list []T, item T, nth, most int) []T {
	if len(list) < most {
		return append(list, item)
	}
	if at := rand.IntN(nth); at < most {
		list[at] = item
	}
	return list
}

// noSamples is the note of a report without any.
const noSamples = "there are no samples: only the counters are known"

// shares are the shares of the kinds of packets among samples.
func shares(of []suggest.Sample) map[string]float64 {
	counts := map[string]float64{}
	for i := range of {
		counts[vectorOf(&of[i])] += 1 / float64(len(of))
	}
	return counts
}

// renew brings the report up to date with the samples, which stand for so many packets a second now.
func (c *collecting) renew(now time.Time, lost uint64, packets float64) {
	r := &c.report
	r.Updated = now
	c.parts()
	if c.samples == 0 {
		r.Note = noSamples
		return
	}
	if r.Note == noSamples {
		r.Note = ""
	}
	all := max(packets, float64(r.Passed.Packets+r.Dropped.Packets)/max(1, r.Active)) // the counters come once a second
	r.Vectors = nil
	for name, n := range c.vectors {
		share := float64(n) / float64(c.samples)
		if share >= leastVector && share*all >= leastGrowth*c.usual[name]*r.Usual {
			r.Vectors = append(r.Vectors, Vector{name, share, sample.SamplingError(uint64(n))})
		}
	}
	slices.SortFunc(r.Vectors, func(a, b Vector) int { return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Name, b.Name)) })
	r.Vectors = r.Vectors[:min(len(r.Vectors), mostVectors)]
	r.Samples, r.Captured = c.views.Samples(c.oneIn, lost, max(1, c.seconds)), len(c.captured)
}
