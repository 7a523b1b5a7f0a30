// SPDX-License-Identifier: Apache-2.0

// This file is the experiment blocklist: a web server that blocks a list of addresses. It follows an article of 2012.

package experiment

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// runBlocklist measures how blocked addresses slow down the visitors of a web server. No packet comes from a blocked address. An article measured
// this in 2012.
func runBlocklist(ctx context.Context, s *rig.Session) error {
	lists, err := makeLists(s)
	if err != nil {
		return err
	}
	return rig.With(ctx, s, func(in *rig.Builder) error {
		b := &blocklist{Builder: in, blockers: blockers()}
		for _, c := range b.blockers {
			b.Steps.Show("starting the server of %s", c.label)
			if c.site, err = newSite(ctx, b.Builder); err != nil {
				return fmt.Errorf("%s: %w", c.label, err)
			}
		}
		defer b.publish() // all figures so far, also when the rest cannot be measured
		return b.measure(ctx, lists)
	})
}

// leastRounds is the minimum number of rounds for the list that is judged. One or two rounds do not show the noise.
const leastRounds = 5

// blocklist is the experiment.
type blocklist struct {
	*rig.Builder
	blockers []*blocker
	points   []*listPoint
}

// listPoint has the results for a list, with a row for each blocker.
type listPoint struct {
	name, label string
	entries     int
	rows        []*rig.Row
	loaded      []rig.Loaded
	shares      [][][2]float64 // for each row, the distribution of the times of requests: percent, and the milliseconds within which that share came
}

// requests returns the number of requests in a round. It is the article's number, or less if phases are too short.
func (b *blocklist) requests() int {
	return max(1, int(min(articleRequests, articleRequests*b.Phase/(3*time.Second))))
}

// measure measures all lists, from the shortest to the longest.
func (b *blocklist) measure(ctx context.Context, lists []func() *rig.List) error {
	for i, prepare := range lists {
		b.Steps.Show("making addresses")
		l := prepare()
		if err := b.point(ctx, l, b.rounds(len(l.Prefixes), i == len(lists)-1)); err != nil {
			return err
		}
	}
	return nil
}

// rounds returns the number of rounds for a list with the given number of entries. The last list is judged, so it gets at least leastRounds. A list
// without a column in the tables gets one round.
func (b *blocklist) rounds(entries int, last bool) int {
	switch {
	case last:
		return max(b.Rounds, leastRounds)
	case b.Sizes == nil && b.List == "" && !(&listPoint{entries: entries}).column():
		return 1
	}
	return b.Rounds
}

// point makes all blockers block a list, and measures the blockers in turn.
func (b *blocklist) point(ctx context.Context, l *rig.List, rounds int) (err error) {
	p := newPoint(l.Name, l.Label, len(l.Prefixes), b.blockers)
	b.points = append(b.points, p)
	defer func() {
		for _, blocks := range p.loaded {
			if blocks.Remove != nil {
				err = errors.Join(err, blocks.Remove())
			}
		}
	}()
	whole := make([]lab.Times, len(b.blockers))
	for i, c := range b.blockers {
		p.rows[i].Setup = &rig.Setup{Label: c.label + " with " + l.Label, Do: func(ctx context.Context) (err error) {
			p.loaded[i], err = b.block(ctx, c, l)
			p.rows[i].Extra = p.loaded[i].Metrics()
			return err
		}}
		p.rows[i].Take = func(ctx context.Context, _ int) (rig.Reading, error) {
			s, err := lab.Serial(ctx, c.serial(l, b.requests()))
			if err != nil {
				return nil, err
			}
			whole[i].Add(s.Whole)
			return blocklistReading(s), nil
		}
	}
	t, s := &rig.Table{Doing: l.Label + ", ", Rows: slices.Clone(p.rows)}, *b.Session
	s.Rows, s.Rounds = nil, rounds
	if err := s.SetUpRows(ctx, t); err != nil {
		return err
	}
	debug.FreeOSMemory() // otherwise the garbage collector would run for the garbage of loading on the clients' CPU
	if err := s.TakeAll(ctx, t); err != nil {
		return err
	}
	for i := range whole {
		p.shares[i] = distribution(&whole[i])
	}
	return nil
}

// newPoint returns a listPoint without results.
func newPoint(name, label string, entries int, blockers []*blocker) *listPoint {
	p := &listPoint{name: name, label: label, entries: entries, loaded: make([]rig.Loaded, len(blockers)), shares: make([][][2]float64, len(blockers))}
	for _, c := range blockers {
		p.rows = append(p.rows, &rig.Row{Name: name + "/" + c.name, Label: c.label, Kind: c.name, Load: name, Line: c.name})
	}
	return p
}

// row returns the row of a blocker.
func (p *listPoint) row(blocker string) *rig.Row {
	return p.rows[slices.IndexFunc(p.rows, func(r *rig.Row) bool { return r.Kind == blocker })]
}

// block makes a blocker block a list, and checks that the list is blocked.
func (b *blocklist) block(ctx context.Context, c *blocker, l *rig.List) (blocks rig.Loaded, err error) {
	n := len(l.Prefixes)
	switch {
	case c.load == nil:
	case c.most > 0 && n > c.most:
		return blocks, &rig.Missing{Reason: fmt.Sprintf("measured with up to %s", report.CountText(c.most))}
	case c.slow && n >= rig.SlowSize && !b.All:
		return blocks, &rig.Missing{Reason: "takes minutes: measured with --all"}
	default:
		if blocks, err = c.load(ctx, c.site, l); err != nil {
			return blocks, err
		}
	}
	return blocks, c.probe(ctx, l)
}

// phaseUnit returns the unit of a figure for a phase of requests.
func phaseUnit(phase, figure string) string {
	return strings.ReplaceAll(phase, " ", "-") + "-" + figure
}

// blocklistReading returns the figures of a round of requests.
func blocklistReading(s *lab.SerialSummary) rig.Reading {
	whole := s.Whole.Latency()
	read := rig.Reading{"req/s": 1e9 / float64(whole.Mean), "mean-ns": float64(whole.Mean), "p50-ns": float64(whole.P50), "p99-ns": float64(whole.P99), "p999-ns": float64(whole.P999)}
	for i, times := range s.Phases {
		of := times.Latency()
		for figure, t := range map[string]time.Duration{"p50-ns": of.P50, "p99-ns": of.P99, "p999-ns": of.P999} {
			read[phaseUnit(lab.SerialPhases[i], figure)] = float64(t)
		}
	}
	return read
}

// distribution returns the distribution of times. Each element has a percentage of the requests, and the time in milliseconds in which they were
// answered.
func distribution(whole *lab.Times) (shares [][2]float64) {
	if whole.Count() == 0 {
		return nil
	}
	for _, percent := range []float64{1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98, 99, 99.5, 99.9} {
		shares = append(shares, [2]float64{percent, whole.Quantile(percent).Seconds() * 1e3})
	}
	return shares
}
