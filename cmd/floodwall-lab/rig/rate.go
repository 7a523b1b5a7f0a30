// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/internal/lab"
)

// RateTable is a table of packet rates: of the receive thread's own time, see lab.Measurement.Cost. A round in which nothing arrived has no figures.
type RateTable struct {
	Table
	cores Cores
	least *Row   // the row of the least that a filter does with these packets: one of Rows
	Base  *Row   // the row that the others' costs are compared with: one of Rows; nil in a table of shares of the limit
	By    string // the unit of times per packet that are divided by the base's
	Rival *Row   // the row that the others should beat: one of Rows, or nil

	// Untold returns, after the rounds, the rows that claims still wait for. Further rounds of these rows follow, until it returns none or the
	// time is over. nil: no claim rests on the table.
	Untold func() []*Row
}

// OfLeast is the goal of a share of the smallest program's rate; 0: none.
func OfLeast(share float64) []Goal {
	return goalOf(Goal{Unit: ofLeast, What: "of least", Bound: share})
}

// XRival is the goal of a multiple of the rate of RateTable.Rival; 0: none.
func XRival(rival string, times float64) []Goal {
	return goalOf(Goal{Unit: xRival, What: "x " + rival, Bound: times})
}

func goalOf(g Goal) []Goal {
	if g.Bound == 0 {
		return nil
	}
	return []Goal{g}
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
	alone := &Table{}
	for _, r := range t.Rows {
		if !t.swapped(r) {
			r.Take = func(ctx context.Context, round int) (Reading, error) { return r.rate(ctx, s, t.cores, uint64(round)) }
			alone.Rows = append(alone.Rows, r)
		}
	}
	if err := s.TakeAll(ctx, alone); err != nil {
		return err
	}
	if err := t.untilTold(ctx, s); err != nil {
		return err
	}
	s.Steps.Expect(swapSteps(swaps, s))
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
		if err := s.takeStage(ctx, &Table{Rows: rows}, round, 0); err != nil {
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

// rate takes one round of one row by itself.
func (r *Row) rate(ctx context.Context, s *Session, c Cores, round uint64) (Reading, error) {
	best, err := r.best(ctx, s, c, round)
	read := rateReading(Capacity(best))
	if len(read) > 0 && Disturbed(best) {
		read[Others] = 1
	}
	return read, err
}

// rateReading returns the figures of a rate.
func rateReading(pps float64) Reading {
	if pps == 0 {
		return Reading{}
	}
	return Reading{timePer: 1e9 / pps, mpps: pps / 1e6}
}

// firstOffer is the first rate that is sent to every row, in packets per second.
const firstOffer = 7e6

// best returns the highest rate that the receiver takes. With a core each, the receiver takes less of a full flood. It returns the pages of the
// frames to the sender's pool, and a sender returns the pages of refused frames itself. The more the sender is ahead, the longer the receiver waits
// for the pool's lock. So the source begins with a lower rate, and raises it step by step. With Quick, only the first step is taken.
func (r *Row) best(ctx context.Context, s *Session, c Cores, round uint64) (best lab.Measurement, err error) {
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
func (r *Row) once(ctx context.Context, s *Session, round uint64, o offer) (best lab.Measurement, err error) {
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
