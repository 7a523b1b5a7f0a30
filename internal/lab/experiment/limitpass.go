package experiment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// passRate is how many packets per second are sent while what passes is counted: no more than the slowest rows can take,
// so that nothing is lost on the way to a limit.
const passRate = 500e3

// Bars of what Floodwall lets through on XDP: how far it may be off what the limit allows, and the least share of the
// packets of sources that do not exceed it.
const (
	mostOff    = 0.02
	leastLight = 0.98
)

// passage is what a limit let through in some time.
type passage struct {
	tally
	time     time.Duration // in which packets were sent
	received uint64        // packets that reached the host
}

// passTime is how long packets are sent while what passes is counted.
func passTime(s *rig.Session) time.Duration { return 4 * s.Window }

// passes counts what each row lets through, in rounds in which the rows take turns.
func (b *limitBuilder) passes(ctx context.Context) error {
	rounds := b.Rounds
	b.Steps.Expect(rounds * len(b.rows))
	for round := 1; round <= rounds; round++ {
		for _, r := range b.rows {
			b.Steps.Show("what passes, round %d of %d, %s", round, rounds, r.Label)
			b.Steps.Step()
			if r.Missing != "" {
				continue
			}
			if err := r.passRound(ctx, passTime(b.Session), round, round == rounds); err != nil {
				return fmt.Errorf("%s: %w", r.Label, err)
			}
		}
	}
	return nil
}

// passRound counts what passes in a round, after the last of which it asks for the prefixes that are held.
func (r *tableRow) passRound(ctx context.Context, duration time.Duration, round int, last bool) error {
	at, of := r.Subject.Site, r.of.inRound(round)
	if r.how.program != nil {
		attached, err := at.Lab.Attach(at.In, r.how.program)
		if err != nil {
			return err
		}
		defer attached.Close()
	}
	if of.light != "" { // the one that sends too much comes when the memory is full
		if _, err := send(ctx, at, []lab.Flow{of.lightFlow()}, duration/2, 0); err != nil {
			return err
		}
	}
	p, err := r.pass(ctx, of.flows(), duration, uint64(round))
	if err != nil {
		return err
	}
	r.passed = append(r.passed, p)
	if last && r.how.entries != nil {
		r.held, err = r.how.entries(ctx)
	}
	return err
}

// pass sends for so long, and counts.
func (r *tableRow) pass(ctx context.Context, flows []lab.Flow, duration time.Duration, seed uint64) (p passage, err error) {
	before, err := r.count(ctx)
	if err != nil {
		return p, err
	}
	if p.time, err = send(ctx, r.Subject.Site, flows, duration, seed); err != nil {
		return p, err
	}
	after, err := r.count(ctx)
	p.received = after.received - before.received
	p.tally = tally{after.over - before.over, after.heavy - before.heavy, after.light - before.light}
	return p, err
}

// send sends at passRate for so long, and returns when all has been taken from the queue, with the time that it took.
func send(ctx context.Context, s *rig.Site, flows []lab.Flow, duration time.Duration, seed uint64) (time.Duration, error) {
	source, err := s.Lab.NewSource(s.Out, lab.SourceOptions{
		Flows: flows, CPU: rig.SourceCPU, Seed: seed, Rate: passRate, Count: uint64(passRate * duration.Seconds()), Urgent: true,
	})
	if err != nil {
		return 0, err
	}
	err = source.Run(ctx)
	took := source.Took()
	time.Sleep(20 * time.Millisecond)
	return took, errors.Join(err, source.Close(), ctx.Err())
}

// count is what the row has counted so far, and what has reached its host.
func (r *tableRow) count(ctx context.Context) (p passage, err error) {
	if p.received, err = r.Subject.Site.In.Received(); err != nil {
		return p, err
	}
	p.tally, err = r.how.tally(ctx)
	return p, err
}

// ofAllowed is what passed of the sources that sent too much, as a share of what the limit allows.
func (r *tableRow) ofAllowed() (all report.Samples) {
	for _, p := range r.passed {
		all = append(all, float64(p.heavy)/r.of.allowed(p.time))
	}
	return all
}

// ofLight is the share of the packets of the other sources that passed; nil when there are none.
func (r *tableRow) ofLight() (all report.Samples) {
	for _, p := range r.passed {
		if sent := lightShare * float64(p.received); r.of.light != "" && sent > 0 {
			all = append(all, min(1, float64(p.light)/sent))
		}
	}
	return all
}

// bars compare what Floodwall lets through on XDP with what it should.
func (r *tableRow) bars(experiment string) (off, light *report.Bar) {
	name := experiment + "/" + r.Name
	if !r.xdp || len(r.passed) == 0 {
		return nil, nil
	}
	worst := 0.0
	for _, share := range r.ofAllowed() {
		worst = max(worst, math.Abs(share-1))
	}
	off = report.AtMost(name+" off what the limit allows", worst, mostOff)
	if shares := r.ofLight(); len(shares) > 0 {
		light = report.AtLeast(name+" of other sources' packets", shares.Median(), leastLight)
	}
	return off, light
}

// publish adds the table of what passes, its results and its bars to the outcome.
func (b *limitBuilder) publish() {
	t := &report.Table{
		Title: "limit: what passes",
		Head:  []string{"", "passed/s", "allowed/s", "of allowed", "min .. max", "bar, off by", "of other sources", "bar", "prefixes held", "MB", ""},
		Notes: []string{
			fmt.Sprintf("Medians of %d rounds of %v at %.1f Mpps. Passed: packets of the sources that send too much; allowed is their rate", b.Rounds, passTime(b.Session), passRate/1e6),
			fmt.Sprintf("and, once, a burst of %d, for each prefix. Of other sources: the share of the packets that pass of sources that", burst),
			"send less than the limit; they come before that one, which is another in each round. The bar is for the round that",
			"is off most. Held: prefixes in memory after the last round; MB: the program's maps.",
		},
	}
	for _, r := range b.rows {
		off, light := r.bars(b.Outcome.Name)
		for _, bar := range []*report.Bar{off, light} {
			if bar != nil {
				b.Outcome.Bars = append(b.Outcome.Bars, bar)
			}
		}
		t.AddRow(r.passCells(off, light)...)
		b.Outcome.Results = append(b.Outcome.Results, r.passResult(b.Outcome.Name))
	}
	b.Outcome.Tables = append(b.Outcome.Tables, t)
}

// passCells are a row as text.
func (r *tableRow) passCells(off, light *report.Bar) []string {
	cells := make([]string, 11)
	cells[0], cells[10] = r.Label, r.Missing
	shares := r.ofAllowed()
	if len(shares) == 0 {
		return cells
	}
	seconds := r.passed[0].time
	allowed := r.of.allowed(seconds) / seconds.Seconds()
	cells[1], cells[2] = fmt.Sprintf("%.0f", shares.Median()*allowed), fmt.Sprintf("%.0f", allowed)
	cells[3], cells[4] = fmt.Sprintf("%.3f", shares.Median()), fmt.Sprintf("%.3f .. %.3f", slices.Min(shares), slices.Max(shares))
	if off != nil {
		cells[5] = off.String()
	}
	if others := r.ofLight(); len(others) > 0 {
		cells[6] = fmt.Sprintf("%.3f", others.Median())
	}
	if light != nil {
		cells[7] = light.String()
	}
	if r.held >= 0 {
		cells[8] = report.CountText(r.held)
	}
	if r.how.bytes > 0 {
		cells[9] = fmt.Sprintf("%.1f", float64(r.how.bytes)/1e6)
	}
	return cells
}

// passResult is a row for programs.
func (r *tableRow) passResult(experiment string) lab.Result {
	res := lab.Result{Name: experiment + "/passes/" + r.Name, Runs: len(r.passed), Note: r.Missing}
	add := func(unit string, figures report.Samples) {
		if len(figures) > 0 {
			res.Metrics = append(res.Metrics, figures.Metric(unit))
		}
	}
	add("of-allowed", r.ofAllowed())
	add("of-others", r.ofLight())
	if r.held >= 0 {
		add("held", report.Samples{float64(r.held)})
	}
	if r.how.bytes > 0 {
		add("kernel-B", report.Samples{float64(r.how.bytes)})
	}
	return res
}
