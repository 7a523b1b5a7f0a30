package attack

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/sources/geo"
)

// The bounds of what is kept of one attack.
const (
	mostCaptured = 2000 // packets of the capture
	mostPassed   = 4000 // samples that rules are searched in
	leastPassed  = 200  // samples for the first search
	mostSearches = 5
	searchEvery  = 30 * time.Second
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
	passed   []suggest.Sample
	seen     int // that passed
	searches int
	searched time.Time

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

// see takes a sample. In a calm second it tells of the harm that automatic rules do, and nothing of the attack.
func (c *collecting) see(p sample.Sample, calm bool) {
	if calm {
		if s := suggest.NewSample(p.Frame, p.Length); s.Kind == packet.IP {
			c.auto.see(&s)
		}
		return
	}
	s := c.views.Add(p)
	if s.Kind != packet.IP {
		return
	}
	c.samples++
	c.auto.see(&s)
	c.vectors[vectorOf(&s)]++
	c.captured = draw(c.captured, p, c.samples, mostCaptured)
	if p.Verdict == ir.Pass.String() {
		c.seen++
		c.passed = draw(c.passed, s, c.seen, mostPassed)
	}
}

// again takes up the samples that a daemon before has kept of the attack. What became of them is not known, so sources are counted anew.
func (c *collecting) again(before []sample.Sample) {
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

// renew brings the report up to date with the samples.
func (c *collecting) renew(now time.Time, lost uint64) {
	r := &c.report
	r.Updated = now
	if c.samples == 0 {
		r.Note = noSamples
		return
	}
	if r.Note == noSamples {
		r.Note = ""
	}
	all := float64(r.Passed.Packets+r.Dropped.Packets) / max(1, r.Active)
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

// due reports whether rules are to be searched now. Where the daemon adds rules by itself, it searches again in what these let pass.
func (c *collecting) due(now time.Time, again bool) bool {
	again = again && !c.auto.observing()
	return len(c.passed) >= leastPassed && (c.searches < mostSearches && c.report.Suggestion == nil || again) && now.Sub(c.searched) >= searchEvery
}

// search searches rules against what passes, of which those of the baseline that are legitimate may match a share.
func (c *collecting) search(now time.Time, good []suggest.Sample, taken map[string]bool, collateral float64) (bool, error) {
	c.searches++
	c.searched = now
	found, err := suggest.Find(suggest.Input{
		Program: &ir.Program{}, Taken: taken, Attack: c.passed, Good: good, Collateral: collateral,
	})
	if err != nil || len(found.Rules) == 0 {
		return false, err
	}
	c.report.Suggestion = &Suggestion{
		Found: now, Expires: now.Add(suggestedFor), Baseline: len(good), Rules: found.Rules, Coverage: found.Coverage, Collateral: found.Collateral,
	}
	return true, nil
}
