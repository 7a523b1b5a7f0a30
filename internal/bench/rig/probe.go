package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/floodwall/floodwall/internal/lab"
)

// probe is one thing whose receive thread's time per packet is measured, with source and receiver on one core. Unlike a
// rate of a tableful of packets, that says something at any load, and to some nanoseconds.
type probe struct {
	label     string
	subject   subject
	flows     []lab.Flow
	costs     series // nanoseconds of the receive thread for each packet, round by round
	disturbed int    // rounds
	source    *lab.Source
	sent      []uint64 // packets of each flow, in all rounds
}

// probes measures all of them in turn, round by round, with so many packets each time; pps is the rate at which they are
// offered, 0 as many as can be. What else is on the machine changes all of them alike.
func (s *session) probes(ctx context.Context, all []*probe, rounds int, pps float64, packets uint64) (err error) {
	defer func() {
		for _, p := range all {
			err = errors.Join(err, p.close())
		}
	}()
	for i, p := range all {
		if err := p.open(pps, packets, uint64(i+1)); err != nil {
			return fmt.Errorf("%s: %w", p.label, err)
		}
	}
	s.progress.expect(rounds * len(all))
	for range rounds {
		for _, p := range all {
			s.progress.show("%s", p.label)
			if err := p.measure(ctx); err != nil {
				return fmt.Errorf("%s: %w", p.label, err)
			}
			s.progress.step()
		}
	}
	return nil
}

// probeBatch is how many packets come at a time where they do at a rate: a network card that interrupts some thousand
// times a second delivers as many.
const probeBatch = 64

func (p *probe) open(pps float64, packets, seed uint64) (err error) {
	o := lab.SourceOptions{Flows: p.flows, CPU: receiverCPU, Seed: seed, Urgent: true, Rate: pps, Count: packets}
	if pps > 0 {
		o.Batch = probeBatch
	}
	p.source, err = p.subject.site.lab.NewSource(p.subject.site.out, o)
	return err
}

func (p *probe) close() error {
	if p.source == nil {
		return nil
	}
	p.sent = p.source.SentBy()
	err := p.source.Close()
	p.source = nil
	return err
}

// measure takes one round.
func (p *probe) measure(ctx context.Context) error {
	at := p.subject.site
	if p.subject.program != nil {
		attached, err := at.lab.Attach(at.in, p.subject.program)
		if err != nil {
			return err
		}
		defer attached.Close()
	}
	m, err := lab.MeasureRun(ctx, p.source, at.in)
	if err != nil {
		return err
	}
	if m.Packets == 0 {
		return errors.New("nothing arrived")
	}
	p.costs = append(p.costs, m.Ran*float64(m.Time)/float64(m.Packets))
	if disturbed(m) {
		p.disturbed++
	}
	return nil
}

// unsteady reports whether the figures are doubtful.
func (p *probe) unsteady() bool { return 2*p.disturbed > len(p.costs) || p.costs.unsteady() }
