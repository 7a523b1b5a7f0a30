// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
)

// Rate is a row of a table of packet rates.
type Rate struct {
	Name    string // of the result, within the experiment: "floodwall/rules=20"
	Label   string // in the table
	Subject Subject
	Flows   []lab.Flow
	Missing string       // why the row cannot be measured
	Flood   string       // for programs: rows with the same name have the same flows, and take turns under one flood
	Share   float64      // the goal, as a share of the smallest program's rate; 0: none
	Times   float64      // the goal, as a multiple of the rival's rate; 0: none
	Extra   []lab.Metric // more figures of the result
	Article *ArticleRow  // the article's figures for this case; nil: none

	Rounds    report.Samples // packets per second of the receive thread's own time, see lab.Measurement.Cost; 0: nothing arrived
	least     report.Samples // the same of the least program in the same rounds, under the same flood; none: it was not measured beside the row
	disturbed int            // rounds in which all tries were disturbed
}

// RateTable is a table of rows that are measured in turn, round by round. So a change on the machine changes all rows.
type RateTable struct {
	Title string
	cores Cores
	Rows  []*Rate
	least *Rate  // the row of the least that a filter does with these packets: one of Rows
	Base  *Rate  // the row that the others' costs are compared with: one of Rows; nil in a table of shares of the limit
	By    string // the unit of figures that are divided by the base's
	Rival *Rate  // the row that the others should beat: one of Rows, or nil
	Notes []string

	// Untold returns, after the rounds, the rows that claims still wait for. Further rounds of these rows follow, until it returns none or the
	// time is over. nil: no claim rests on the table.
	Untold func() []*Rate
}

// disturbedShare is the share of the time that other threads may have the receiving CPU. Above it, a measurement is repeated.
const disturbedShare = 0.02

// Measure takes all rounds, and publishes the figures, also when ctx ends in between. With a core each, XDP programs take turns under one flood
// (see swap); every other row is measured by itself.
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

// claimWindows limits the time of further rounds, in windows for each row. It includes all that a round takes beside its window.
const claimWindows = 20

// untilTold takes the further rounds that claims need. The rows of a claim are measured in the same rounds.
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

// firstOffer is the first rate that is sent to every row, in packets per second.
const firstOffer = 7e6

// best returns the highest rate that the receiver takes. With a core each, the receiver takes less of a full flood. It returns the pages of the
// frames to the sender's pool, and a sender returns the pages of refused frames itself. The more the sender is ahead, the longer the receiver waits
// for the pool's lock. So the source begins with a lower rate, and raises it step by step. With Quick, only the first step is taken.
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

// once takes a measurement, and repeats it if it was disturbed. If all tries were disturbed, it returns the one in which most packets arrived.
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

// Disturbed reports whether other threads took so much of the receiver's time that its rate says little.
func Disturbed(m lab.Measurement) bool { return m.Waited > disturbedShare || m.Stolen > disturbedShare }

// Capacity returns packets per second of the receive thread's own time. Other load on the machine changes it little, and so does a source that was
// held up.
func Capacity(m lab.Measurement) float64 {
	if cost := m.Cost(); cost > 0 {
		return float64(m.Packets) / (m.Ran * m.Time.Seconds())
	}
	return 0
}

// Arrived returns the rounds in which packets arrived. In the other rounds something else had the CPUs, so they say nothing about the row.
func (r *Rate) Arrived() report.Samples { return r.Rounds.Positive() }

// failed returns the number of rounds in which nothing arrived.
func (r *Rate) failed() int { return len(r.Rounds) - len(r.Arrived()) }
