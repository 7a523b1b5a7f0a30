// This file is the experiment of that name: a web server behind blocked addresses, by an article of 2012.

package experiment

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// runBlocklist measures what addresses that are blocked, and never come, cost those who visit a web server, as an article did
// in 2012.
func runBlocklist(ctx context.Context, s *rig.Session) error {
	lists, err := makeLists(s)
	if err != nil {
		return err
	}
	return rig.InLab(ctx, func(l *lab.Lab) error {
		b := &builder{Builder: rig.Builder{Session: s, Lab: l}, cases: testCases()}
		defer b.Close()
		for _, c := range b.cases {
			b.Steps.Show("starting the server of %s", c.label)
			if c.site, err = newSite(ctx, &b.Builder); err != nil {
				return fmt.Errorf("%s: %w", c.label, err)
			}
		}
		defer b.publish() // what there is, also when the rest cannot be measured
		return b.measure(ctx, lists)
	})
}

// leastRounds is the least number of rounds of the list that is judged: by one or two, noise cannot be told.
const leastRounds = 5

// builder makes the tables of blocklist.
type builder struct {
	rig.Builder
	cases  []*testCase
	points []listPoint
}

// testCase is a row of the tables: what blocks the addresses, on a host of its own.
type testCase struct {
	blocker
	site   *rig.Site
	visits []*visit // one for each point
}

// listPoint is a list that was measured.
type listPoint struct {
	name    string
	label   string
	entries int
}

// visit is what came of the requests of all rounds with a list.
type visit struct {
	blocking
	missing string
	rounds  []roundTimes
	whole   lab.Times    // of all rounds; only until the point is measured
	shares  [][2]float64 // of whole: percent, and milliseconds within which that many requests came
}

// roundTimes is the figures of a round of requests.
type roundTimes struct {
	whole  lab.Latency
	phases [len(lab.SerialPhases)]lab.Latency
}

// requests is how many make a round: the article's, unless phases are too short for them.
func (b *builder) requests() int {
	return max(1, int(min(articleRequests, articleRequests*b.Phase/(3*time.Second))))
}

// measure takes all lists, from the shortest to the longest.
func (b *builder) measure(ctx context.Context, lists []func() *rig.List) error {
	b.Steps.Expect(len(lists))
	for i, prepare := range lists {
		b.Steps.Show("making addresses")
		l := prepare()
		if err := b.point(ctx, l, b.rounds(len(l.Prefixes), i == len(lists)-1)); err != nil {
			return err
		}
		b.Steps.Step()
	}
	return nil
}

// rounds is how many are taken of so many entries: enough of the last ones, which are judged, and one where tables have no
// column.
func (b *builder) rounds(entries int, last bool) int {
	switch {
	case last:
		return max(b.Rounds, leastRounds)
	case b.Sizes == nil && b.List == "" && !(listPoint{entries: entries}).column():
		return 1
	}
	return b.Rounds
}

// point has all cases block a list, and then measures them in turn.
func (b *builder) point(ctx context.Context, l *rig.List, rounds int) (err error) {
	for _, c := range b.cases {
		c.visits = append(c.visits, &visit{})
	}
	b.points = append(b.points, listPoint{name: l.Name, label: l.Label, entries: len(l.Prefixes)})
	defer func() { err = errors.Join(err, b.unblock()) }()
	for _, c := range b.cases {
		b.Steps.Show("%s: loading %s", c.label, l.Label)
		if c.now().missing, err = rig.Tolerate(b.block(ctx, c, l)); err != nil {
			return fmt.Errorf("%s, %s: %w", c.label, l.Label, err)
		}
	}
	debug.FreeOSMemory() // what loading leaves to the garbage collector would be collected on the clients' CPU
	for round := range rounds {
		for _, c := range rig.Alternated(b.cases, round) {
			b.Steps.Show("%s: round %d of %d, %s", l.Label, round+1, rounds, c.label)
			if err := b.round(ctx, c, l); err != nil {
				return fmt.Errorf("%s, %s: %w", c.label, l.Label, err)
			}
		}
	}
	for _, c := range b.cases {
		c.now().distribute()
	}
	return nil
}

// now is the visit of the list that is measured.
func (c *testCase) now() *visit { return c.visits[len(c.visits)-1] }

// unblock ends what blocks the list.
func (b *builder) unblock() (err error) {
	for _, c := range b.cases {
		if remove := c.now().remove; remove != nil {
			err = errors.Join(err, remove())
		}
	}
	return err
}

// block has a case block a list, and makes sure that it does.
func (b *builder) block(ctx context.Context, c *testCase, l *rig.List) (err error) {
	n := len(l.Prefixes)
	switch {
	case c.load == nil:
	case c.most > 0 && n > c.most:
		return &rig.Missing{Reason: fmt.Sprintf("measured with up to %s", report.CountText(c.most))}
	case c.slow && n >= rig.SlowSize && !b.All:
		return &rig.Missing{Reason: "takes minutes: measured with --all"}
	default:
		if c.now().blocking, err = c.load(ctx, c.site, l); err != nil {
			return err
		}
	}
	return c.probe(ctx, l)
}

// round takes one round of a case.
func (b *builder) round(ctx context.Context, c *testCase, l *rig.List) error {
	v := c.now()
	if v.missing != "" {
		return nil
	}
	s, err := lab.Serial(ctx, c.serial(l, b.requests()))
	if err != nil {
		return err
	}
	r := roundTimes{whole: s.Whole.Latency()}
	for i, times := range s.Phases {
		r.phases[i] = times.Latency()
	}
	v.rounds = append(v.rounds, r)
	v.whole.Add(s.Whole)
	return nil
}

// distribute keeps of all times which shares of them were within which time.
func (v *visit) distribute() {
	if v.whole.Count() > 0 {
		for _, percent := range []float64{1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98, 99, 99.5, 99.9} {
			v.shares = append(v.shares, [2]float64{percent, v.whole.Quantile(percent).Seconds() * 1e3})
		}
	}
	v.whole = lab.Times{}
}
