package rig

import (
	"context"
	"errors"
	"fmt"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
)

// Probe is one thing whose receive thread's time per packet is measured, with source and receiver on one core. Unlike a
// rate of a tableful of packets, that says something at any load, and to some nanoseconds.
type Probe struct {
	Label     string
	Subject   Subject
	Flows     []lab.Flow
	Costs     report.Samples // nanoseconds of the receive thread for each packet, round by round
	disturbed int            // rounds
	source    *lab.Source
	Sent      []uint64 // packets of each flow, in all rounds
}

// Probes measures all of them in turn, round by round, with so many packets each time; pps is the rate at which they are
// offered, 0 as many as can be. What else is on the machine changes all of them alike.
func (s *Session) Probes(ctx context.Context, all []*Probe, rounds int, pps float64, packets uint64) (err error) {
	defer func() {
		for _, p := range all {
			err = errors.Join(err, p.Close())
		}
	}()
	for i, p := range all {
		if err := p.Open(pps, packets, uint64(i+1)); err != nil {
			return fmt.Errorf("%s: %w", p.Label, err)
		}
	}
	s.Steps.Expect(rounds * len(all))
	for range rounds {
		for _, p := range all {
			s.Steps.Show("%s", p.Label)
			if err := p.Measure(ctx); err != nil {
				return fmt.Errorf("%s: %w", p.Label, err)
			}
			s.Steps.Step()
		}
	}
	return nil
}

// ProbeBatch is how many packets come at a time where they do at a rate: a network card that interrupts some thousand
// times a second delivers as many.
const ProbeBatch = 64

// Open makes the source, which offers so many packets each time at pps, 0 for as many as can be.
func (p *Probe) Open(pps float64, packets, seed uint64) (err error) {
	o := lab.SourceOptions{Flows: p.Flows, CPU: ReceiverCPU, Seed: seed, Urgent: true, Rate: pps, Count: packets}
	if pps > 0 {
		o.Batch = ProbeBatch
	}
	p.source, err = p.Subject.Site.Lab.NewSource(p.Subject.Site.Out, o)
	return err
}

// Close ends the source, if there is one.
func (p *Probe) Close() error {
	if p.source == nil {
		return nil
	}
	p.Sent = p.source.SentBy()
	err := p.source.Close()
	p.source = nil
	return err
}

// Measure takes one round.
func (p *Probe) Measure(ctx context.Context) error {
	at := p.Subject.Site
	if p.Subject.Program != nil {
		attached, err := at.Lab.Attach(at.In, p.Subject.Program)
		if err != nil {
			return err
		}
		defer attached.Close()
	}
	m, err := lab.MeasureRun(ctx, p.source, at.In)
	if err != nil {
		return err
	}
	if m.Packets == 0 {
		return errors.New("nothing arrived")
	}
	p.Costs = append(p.Costs, m.Ran*float64(m.Time)/float64(m.Packets))
	if Disturbed(m) {
		p.disturbed++
	}
	return nil
}

// Unsteady reports whether the figures are doubtful.
func (p *Probe) Unsteady() bool { return 2*p.disturbed > len(p.Costs) || p.Costs.Unsteady() }
