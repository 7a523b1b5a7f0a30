package rig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
)

// Rate is a row of a table of packet rates.
type Rate struct {
	Name    string // of the result, within the experiment: "floodwall/rules=20"
	Label   string // in the table
	Subject Subject
	Flows   []lab.Flow
	Missing string       // why there is nothing to measure
	Flood   string       // of programs: rows of one name have the same flows, and take turns under one flood
	Share   float64      // of the least program's rate to reach; 0: none is asked for
	Times   float64      // how many times the rival's rate to reach; 0: none is asked for
	Extra   []lab.Metric // that belong to the result
	Article *ArticleRow  // what an article says of it; nil: nothing

	Rounds    report.Samples // packets per second of the receive thread's own time, see lab.Measurement.Cost; 0: nothing arrived
	least     report.Samples // the same of the least program in the same rounds, under the same flood; none: it was not beside
	disturbed int            // rounds that stayed disturbed
}

// RateTable is rows that are measured in turn, round by round, so that what changes on the machine meanwhile changes
// all of them.
type RateTable struct {
	Title string
	cores Cores
	Rows  []*Rate
	least *Rate  // the least that a filter of these packets does: one of rows
	Base  *Rate  // what the others' costs are compared with: one of rows; nil in a table of shares of the limit
	By    string // the unit of figures by the base's
	Rival *Rate  // what the others should be faster than: one of rows, or nil
	Notes []string

	// Untold is asked after the rounds which rows claims still wait for: further rounds of these follow, until there are none or the time is
	// over. nil: no claim rests on the table.
	Untold func() []*Rate
}

// disturbedShare is the share of the time that others may have the receiving CPU, beyond which a measurement is taken again.
const disturbedShare = 0.02

// Measure takes all rounds, and publishes what there is, also when ctx ends in between. With a core each, XDP programs take
// turns under one flood (see swap), and all else is measured by itself.
func (t *RateTable) Measure(ctx context.Context, s *Session) (err error) {
	defer func() { t.publish(s.Outcome) }()
	t.Notes = append(slices.Clone(t.Notes), fmt.Sprintf(
		"Medians of %d rounds of %v, in which the rows take turns. CPU %d sends, CPU %d receives.",
		s.Rounds, s.Window, t.cores.cpu(), ReceiverCPU))
	swaps, err := t.swaps()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll(swaps)) }()
	alone := slices.DeleteFunc(slices.Clone(t.Rows), func(r *Rate) bool { return r.Missing != "" || t.swapped(r) })
	s.Steps.Expect(s.Rounds*len(alone) + swapSteps(swaps, s))
	for round := range s.Rounds {
		if err := t.turn(ctx, s, alone, round); err != nil {
			return err
		}
	}
	if err := t.untilTold(ctx, s); err != nil {
		return err
	}
	for _, w := range swaps {
		if err := w.measure(ctx, s); err != nil {
			return err
		}
	}
	if len(swaps) > 0 {
		t.Notes = append(t.Notes, swapNotes(swaps, s)...)
	}
	return nil
}

// turn takes one round of some rows.
func (t *RateTable) turn(ctx context.Context, s *Session, rows []*Rate, round int) error {
	for _, r := range rows {
		s.Steps.Show("round %d, %s", round+1, r.Label)
		if err := r.measure(ctx, s, t.cores, uint64(round)); err != nil {
			return fmt.Errorf("%s: %w", r.Label, err)
		}
		s.Steps.Step()
	}
	return nil
}

// claimWindows is for how many windows a row further rounds may go on, with all that a round takes beside its window.
const claimWindows = 20

// untilTold takes the further rounds that claims need, each claim's rows in the same rounds.
func (t *RateTable) untilTold(ctx context.Context, s *Session) error {
	if t.Untold == nil {
		return nil
	}
	rows := t.Untold()
	end := time.Now().Add(time.Duration(claimWindows*len(rows)) * s.Window)
	round := s.Rounds
	for ; len(rows) > 0 && time.Now().Before(end); rows = t.Untold() {
		if err := t.turn(ctx, s, rows, round); err != nil {
			return err
		}
		round++
	}
	if round > s.Rounds {
		t.Notes = append(t.Notes, fmt.Sprintf("Rows of claims have up to %d rounds: %s.", round,
			report.Choice(len(rows) == 0, "then their intervals were narrow", "then the time was over, and some intervals are still wide")))
	}
	return nil
}

// measure takes one round of one row by itself.
func (r *Rate) measure(ctx context.Context, s *Session, c Cores, round uint64) error {
	best, err := r.best(ctx, s, c, round)
	if err != nil {
		return err
	}
	r.Rounds = append(r.Rounds, Capacity(best))
	if best.PPS > 0 && Disturbed(best) {
		r.disturbed++
	}
	return nil
}

// firstOffer is the rate, in packets per second, that every row can be sent to begin with.
const firstOffer = 7e6

// best is what the receiver takes at most. With a core each, that is not what it takes of a full flood: it returns the
// pages of the frames to the sender's pool, and a sender whose frames are refused returns them itself; the more it is
// ahead, the longer the receiver waits for the pool's lock. So the source offers less, and more step by step. With Quick,
// the first step is all.
func (r *Rate) best(ctx context.Context, s *Session, c Cores, round uint64) (best lab.Measurement, err error) {
	if c == OneCore {
		return r.once(ctx, s, round, offer{cpu: ReceiverCPU})
	}
	if best, err = r.once(ctx, s, round, offer{firstOffer, SourceCPU}); err != nil || s.Quick {
		return best, err
	}
	for _, times := range []float64{1.1, 1.3, 1.6} {
		m, err := r.once(ctx, s, round, offer{times * best.PPS, SourceCPU})
		if err != nil {
			return best, err
		}
		if Capacity(m) > Capacity(best) {
			best = m
		}
	}
	return best, nil
}

// once takes a measurement. One that was disturbed is taken again; of those that all were, the one counts in which most
// arrived.
func (r *Rate) once(ctx context.Context, s *Session, round uint64, o offer) (best lab.Measurement, err error) {
	for range s.Tries() {
		m, err := r.Subject.measure(ctx, r.Flows, o, round+1, s.Window)
		if err != nil || !Disturbed(m) {
			return m, err
		}
		if m.PPS > best.PPS {
			best = m
		}
	}
	return best, nil
}

// Disturbed reports whether others took so much of the receiver's time that its rate says little.
func Disturbed(m lab.Measurement) bool { return m.Waited > disturbedShare || m.Stolen > disturbedShare }

// Capacity is the packets per second of the receive thread's own time. Others on the machine, and a source that was held up,
// change it little.
func Capacity(m lab.Measurement) float64 {
	if cost := m.Cost(); cost > 0 {
		return float64(m.Packets) / (m.Ran * m.Time.Seconds())
	}
	return 0
}

// Arrived is the rounds in which anything did. In the others something else had the CPUs, which says nothing of the row.
func (r *Rate) Arrived() report.Samples { return r.Rounds.Positive() }

// failed is how many those others are.
func (r *Rate) failed() int { return len(r.Rounds) - len(r.Arrived()) }
