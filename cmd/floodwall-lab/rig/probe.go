// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"errors"
	"fmt"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/internal/lab"
)

// Probe measures the time per packet of a receive thread, with source and receiver on one core. Unlike the packet rate of a table, this time is
// valid at any load, and precise to some nanoseconds.
type Probe struct {
	Label     string
	Subject   Subject
	Flows     []lab.Flow
	Row       *Row           // whose rounds are the probe's; nil: none
	Costs     report.Samples // nanoseconds of the receive thread for each packet, round by round
	disturbed bool           // in the last round
	source    *lab.Source
	Sent      []uint64 // packets of each flow, in all rounds
}

// Probes measures all probes in turn, round by round, with this number of packets each time. They are sent at the rate pps; 0 is as many as possible.
// Other load on the machine changes all probes in the same way.
func (s *Session) Probes(ctx context.Context, all []*Probe, rounds int, pps float64, packets uint64) (err error) {
	defer func() {
		for _, p := range all {
			err = errors.Join(err, p.Close())
		}
	}()
	t, in := &Table{}, *s
	in.Rounds = rounds
	for i, p := range all {
		if err := p.Open(pps, packets, uint64(i+1)); err != nil {
			return fmt.Errorf("%s: %w", p.Label, err)
		}
		if p.Row == nil {
			p.Row = &Row{Label: p.Label}
		}
		p.Row.Take = func(ctx context.Context, _ int) (Reading, error) { return p.read(ctx) }
		t.Rows = append(t.Rows, p.Row)
	}
	return in.TakeAll(ctx, t)
}

// ProbeBatch is the number of packets that arrive together when they are sent at a rate. A network card that interrupts some thousand times a
// second delivers as many.
const ProbeBatch = 64

// Open makes the source. The source sends this number of packets each time at the rate pps; 0 is as many as possible.
func (p *Probe) Open(pps float64, packets, seed uint64) (err error) {
	o := lab.SourceOptions{Flows: p.Flows, CPU: ReceiverCPU, Seed: seed, Urgent: true, Rate: pps, Count: packets}
	if pps > 0 {
		o.Batch = ProbeBatch
	}
	p.source, err = p.Subject.Site.Lab.NewSource(p.Subject.Site.Out, o)
	return err
}

// Close closes the source, if there is one.
func (p *Probe) Close() error {
	if p.source == nil {
		return nil
	}
	p.Sent = p.source.SentBy()
	err := p.source.Close()
	p.source = nil
	return err
}

// read measures one round. The reading has the nanoseconds for each packet, and whether other threads had the CPU.
func (p *Probe) read(ctx context.Context) (Reading, error) {
	if err := p.Measure(ctx); err != nil {
		return nil, err
	}
	return Reading{timePer: p.Costs[len(p.Costs)-1], Others: report.Choice[float64](p.disturbed, 1, 0)}, nil
}

// Others is a figure. It is 1 in rounds in which other threads had the receiving CPU.
const Others = "others"

// Measure measures one round.
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
	p.disturbed = Disturbed(m)
	return nil
}
