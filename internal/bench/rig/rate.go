package rig

import (
	"context"
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/bench/report"
	"github.com/floodwall/floodwall/internal/lab"
)

// Rate is a row of a table of packet rates.
type Rate struct {
	Name    string // of the result, within the experiment: "floodwall/rules=20"
	Label   string // in the table
	Subject Subject
	Flows   []lab.Flow
	Missing string       // why there is nothing to measure
	Least   float64      // the share of the limit to reach; 0: none is asked for
	Times   float64      // how many times the rival's rate to reach; 0: none is asked for
	Extra   []lab.Metric // that belong to the result
	Article *ArticleRow  // what an article says of it; nil: nothing

	Rounds    report.Samples // packets per second, of the offer of which it took most; 0: nothing arrived
	reference report.Samples // packets per second at referenceOffer; 0: nothing arrived
	disturbed int            // rounds that stayed disturbed
	starved   int            // rounds in which the receiver could have taken more
}

// RateTable is rows that are measured in turn, round by round, so that what changes on the machine meanwhile changes
// all of them.
type RateTable struct {
	Title string
	cores Cores
	Rows  []*Rate
	empty *Rate // the limit: one of rows
	touch *Rate // the limit of programs that look at the packet: one of rows
	Base  *Rate // what the others' costs are compared with: one of rows; nil in a table of shares of the limit
	Rival *Rate // what the others should be faster than: one of rows, or nil
	Notes []string
}

// Shares of the time.
const (
	disturbedShare = 0.02 // that others had the receiving CPU
	IdleShare      = 0.05 // that the receive thread was idle
)

// Measure takes all rounds, and publishes what there is, also when ctx ends in between.
func (t *RateTable) Measure(ctx context.Context, s *Session) error {
	rounds := report.Choice(t.cores == OneCore, s.FewerRounds(), s.Rounds)
	t.Notes = append(slices.Clone(t.Notes), fmt.Sprintf(
		"Medians of %d rounds of %v, in which the rows take turns. CPU %d sends, CPU %d receives.",
		rounds, s.Window, t.cores.cpu(), ReceiverCPU))
	defer t.publish(s.Outcome)
	s.Steps.Expect(rounds * len(t.Rows))
	for round := range rounds {
		for _, r := range t.Rows {
			s.Steps.Show("round %d of %d, %s", round+1, rounds, r.Label)
			if err := r.Measure(ctx, s, t.cores, uint64(round)); err != nil {
				return fmt.Errorf("%s: %w", r.Label, err)
			}
			s.Steps.Step()
		}
	}
	return nil
}

// referenceOffer is what the source of the lab that the bars were set with could send: its receive thread was a third
// busy with an empty program. A full source makes the same bars three times as hard.
const referenceOffer = 7e6

// Measure takes one round of one row.
func (r *Rate) Measure(ctx context.Context, s *Session, c Cores, round uint64) error {
	if r.Missing != "" {
		return nil
	}
	best, err := r.best(ctx, s, c, round)
	if err != nil {
		return err
	}
	r.Rounds = append(r.Rounds, c.figure(best))
	if best.PPS == 0 {
		return nil // nothing that could be disturbed
	}
	if Disturbed(best) {
		r.disturbed++
	} else if c.starved(best) {
		r.starved++
	}
	return nil
}

// best is what the receiver takes at most. With a core each, that is not what it takes of a full flood: it returns the
// pages of the frames to the sender's pool, and a sender whose frames are refused returns them itself; the more it is
// ahead, the longer the receiver waits for the pool's lock. So the source offers less, and more step by step. With Quick,
// the first step is all.
func (r *Rate) best(ctx context.Context, s *Session, c Cores, round uint64) (best lab.Measurement, err error) {
	if c == OneCore {
		return r.once(ctx, s, round, offer{cpu: ReceiverCPU})
	}
	if best, err = r.once(ctx, s, round, offer{referenceOffer, SourceCPU}); err != nil {
		return best, err
	}
	r.reference = append(r.reference, best.PPS)
	if s.Quick {
		return best, nil
	}
	for _, pps := range offers(best.PPS) {
		m, err := r.once(ctx, s, round, offer{pps, SourceCPU})
		if err != nil {
			return best, err
		}
		if m.PPS > best.PPS {
			best = m
		}
	}
	return best, nil
}

// offers are the rates at which the receiver may take more than it took of the reference offer.
func offers(taken float64) []float64 {
	if taken > 0.9*referenceOffer {
		return []float64{9e6, 12e6, 0}
	}
	return []float64{1.1 * taken, 1.3 * taken, 1.6 * taken}
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

// Arrived is the rounds in which anything did. In the others something else had the CPUs, which says nothing of the row.
func (r *Rate) Arrived() report.Samples { return r.Rounds.Positive() }

// failed is how many those others are.
func (r *Rate) failed() int { return len(r.Rounds) - len(r.Arrived()) }
