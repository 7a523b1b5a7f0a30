// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/sources/geo"
)

// Limits of the data that is kept of an attack.
const (
	mostCaptured = 2000      // packets of the capture
	mostPassed   = 4000      // samples of the time just before an attack
	suggestedFor = time.Hour // how long a suggestion is valid

	leastVector = 0.05 // least share of the samples from which on a kind of packets is listed
	leastGrowth = 2    // a kind of packets is listed only if its rate is at least this many times its usual rate
	mostVectors = 8
)

// collecting is the data of the current attack.
type collecting struct {
	report   Report
	views    *operate.Views
	vectors  map[string]int
	usual    map[string]float64 // share of each kind of packets in quiet times; nil: unknown
	seconds  float64            // seconds in which samples were counted
	samples  int
	oneIn    uint32
	captured []sample.Sample
	joined   []*joined
	lost     uint64 // number of lost samples
	refused  string // why the found rule must not be added automatically; "": no rule was found
	searching

	auto *automatic // nil until the daemon adds or adopts an automatic rule
}

func newCollecting(report Report, databases geo.Databases) *collecting {
	return &collecting{report: report, views: operate.NewViews(databases), vectors: map[string]int{}}
}

// count adds the counters of one second of the attack. The second ended at end.
func (c *collecting) count(t *operate.Top, end time.Time) {
	c.report.add(t, end)
	c.seconds += t.Seconds
}

// see adds a sample, and counts it for the automatic rules. In a calm second it only counts it for the rules, because the sample is no part of the
// attack.
func (c *collecting) see(s *seen, calm bool) {
	c.auto.see(s)
	if !calm {
		c.views.Add(&s.Sample)
		c.add(&s.Sample)
	}
}

// add adds a sample of the attack.
func (c *collecting) add(s *suggest.Sample) {
	c.samples++
	c.vectors[vectorOf(s)]++
	c.captured = draw(c.captured, s.Sample, c.samples, mostCaptured)
}

// joined is a load that is part of the attack.
type joined struct {
	load *load
	Part
}

// join makes a load a part of the attack.
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

// judge judges a part again while the part is above its bound.
func (j *joined) judge(t *traffic, now time.Time) {
	f := t.facts(j.load, now)
	if f.Packets <= j.Bound {
		return
	}
	if v := f.verdict(unclearFor); v != "" {
		j.Facts, j.Verdict = f, v
	}
}

// parts writes the facts of each joined load into the report.
func (c *collecting) parts() {
	c.report.Parts = nil
	for _, j := range c.joined {
		c.report.Parts = append(c.report.Parts, j.Part)
		c.peak(j.Packets)
	}
}

// peak raises the report's peak rate to a rate from samples. It exists because an attack is reported within tenths of a second, before the counters
// of the first second are read.
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

// attacked reports whether any part has the verdict Attack.
func (c *collecting) attacked() bool {
	return slices.ContainsFunc(c.joined, func(j *joined) bool { return j.Verdict == Attack })
}

// calm reports whether the last second was quiet: in a pause of the attack or after it.
func (c *collecting) calm() bool {
	return len(c.joined) > 0 && !slices.ContainsFunc(c.joined, func(j *joined) bool { return j.load.rate.bound > 0 && !j.load.rate.calm() })
}

// ended reports whether all parts of the attack are over.
func (c *collecting) ended() bool {
	return len(c.joined) > 0 && !slices.ContainsFunc(c.joined, func(j *joined) bool { return j.load.rate.bound > 0 })
}

// resume takes over the samples that an earlier daemon kept of the attack. The verdicts on these samples are unknown, so sources are counted anew.
func (c *collecting) resume(before []sample.Sample) {
	c.searched = time.Now()
	c.report.Note = "the daemon was started again during the attack: sources are of the time since"
	for _, p := range before {
		s := suggest.NewSample(p)
		c.add(&s)
	}
}

// draw is algorithm R (Vitter, "Random Sampling with a Reservoir", 1985) for the nth item of a stream. most is the size of the reservoir.
func draw[T any](list []T, item T, nth, most int) []T {
	if len(list) < most {
		return append(list, item)
	}
	if at := rand.IntN(nth); at < most {
		list[at] = item
	}
	return list
}

// noSamples is the note of a report without samples.
const noSamples = "there are no samples: only the counters are known"

// shares returns the share of each kind of packets among samples.
func shares(of []suggest.Sample) map[string]float64 {
	counts := map[string]float64{}
	for i := range of {
		counts[vectorOf(&of[i])] += 1 / float64(len(of))
	}
	return counts
}

// renew updates the report with the samples. The samples stand for the given number of packets a second at present.
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
	c.peak(packets)
	all := max(packets, float64(r.Passed.Packets+r.Dropped.Packets)/max(1, r.Active)) // the samples are newer than the counters, which are read only once a second
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
