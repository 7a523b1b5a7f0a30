package bench

import (
	"context"
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/lab"
)

// rate is a row of a table of packet rates.
type rate struct {
	name    string // of the result, within the experiment: "floodwall/rules=20"
	label   string // in the table
	subject subject
	flows   []lab.Flow
	missing string       // why there is nothing to measure
	least   float64      // the share of the limit to reach; 0: none is asked for
	times   float64      // how many times the rival's rate to reach; 0: none is asked for
	extra   []lab.Metric // that belong to the result
	article *articleRow  // what an article says of it; nil: nothing

	rounds    series // packets per second, of the offer of which it took most; 0: nothing arrived
	reference series // packets per second at referenceOffer; 0: nothing arrived
	disturbed int    // rounds that stayed disturbed
	starved   int    // rounds in which the receiver could have taken more
}

// rateTable is rows that are measured in turn, round by round, so that what changes on the machine meanwhile changes
// all of them.
type rateTable struct {
	title string
	cores cores
	rows  []*rate
	empty *rate // the limit: one of rows
	touch *rate // the limit of programs that look at the packet: one of rows
	base  *rate // what the others' costs are compared with: one of rows; nil in a table of shares of the limit
	rival *rate // what the others should be faster than: one of rows, or nil
	notes []string
}

// tries is how often a disturbed measurement is taken before it is taken as it is.
func (o Options) tries() int {
	if o.Quick {
		return 1
	}
	return 3
}

// Shares of the time.
const (
	disturbedShare = 0.02 // that others had the receiving CPU
	idleShare      = 0.05 // that the receive thread was idle
)

// measure takes all rounds, and publishes what there is, also when ctx ends in between.
func (t *rateTable) measure(ctx context.Context, s *session) error {
	rounds := choice(t.cores == oneCore, s.fewerRounds(), s.Rounds)
	t.notes = append(slices.Clone(t.notes), fmt.Sprintf(
		"Medians of %d rounds of %v, in which the rows take turns. CPU %d sends, CPU %d receives.",
		rounds, s.Window, t.cores.cpu(), receiverCPU))
	defer t.publish(s.outcome)
	s.progress.expect(rounds * len(t.rows))
	for round := range rounds {
		for _, r := range t.rows {
			s.progress.show("round %d of %d, %s", round+1, rounds, r.label)
			if err := r.measure(ctx, s, t.cores, uint64(round)); err != nil {
				return fmt.Errorf("%s: %w", r.label, err)
			}
			s.progress.step()
		}
	}
	return nil
}

// referenceOffer is what the source of the lab that the bars were set with could send: its receive thread was a third
// busy with an empty program. A full source makes the same bars three times as hard.
const referenceOffer = 7e6

// measure takes one round of one row.
func (r *rate) measure(ctx context.Context, s *session, c cores, round uint64) error {
	if r.missing != "" {
		return nil
	}
	best, err := r.best(ctx, s, c, round)
	if err != nil {
		return err
	}
	r.rounds = append(r.rounds, c.figure(best))
	if best.PPS == 0 {
		return nil // nothing that could be disturbed
	}
	if disturbed(best) {
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
func (r *rate) best(ctx context.Context, s *session, c cores, round uint64) (best lab.Measurement, err error) {
	if c == oneCore {
		return r.once(ctx, s, round, offer{cpu: receiverCPU})
	}
	if best, err = r.once(ctx, s, round, offer{referenceOffer, sourceCPU}); err != nil {
		return best, err
	}
	r.reference = append(r.reference, best.PPS)
	if s.Quick {
		return best, nil
	}
	for _, pps := range offers(best.PPS) {
		m, err := r.once(ctx, s, round, offer{pps, sourceCPU})
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
func (r *rate) once(ctx context.Context, s *session, round uint64, o offer) (best lab.Measurement, err error) {
	for range s.tries() {
		m, err := r.subject.measure(ctx, r.flows, o, round+1, s.Window)
		if err != nil || !disturbed(m) {
			return m, err
		}
		if m.PPS > best.PPS {
			best = m
		}
	}
	return best, nil
}

// arrived is the rounds in which anything did. In the others something else had the CPUs, which says nothing of the row.
func (r *rate) arrived() series { return r.rounds.positive() }

// failed is how many those others are.
func (r *rate) failed() int { return len(r.rounds) - len(r.arrived()) }

// disturbed reports whether others took so much of the receiver's time that its rate says little.
func disturbed(m lab.Measurement) bool { return m.Waited > disturbedShare || m.Stolen > disturbedShare }
