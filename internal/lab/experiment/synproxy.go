// This file is the experiment of that name: a web server under floods of SYNs and ACKs, by a talk of 2021.

package experiment

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// runSynproxy measures a web server under floods of SYNs and ACKs, as a talk did in 2021: what its defences hold, and what
// is left for its clients.
func runSynproxy(ctx context.Context, s *rig.Session) error {
	if err := synproxyFloods(ctx, s); err != nil {
		return err
	}
	if err := bulk(ctx, s); err != nil {
		return err
	}
	return churn(ctx, s)
}

// synproxyFloods measures with floods: the most that there is of each, and clients beside them.
func synproxyFloods(ctx context.Context, s *rig.Session) error {
	return rig.InLab(ctx, func(l *lab.Lab) (err error) {
		b := &synproxyBuilder{Builder: rig.Builder{Session: s, Lab: l}}
		defer b.Close()
		for _, c := range synproxyTestCases() {
			c.newFigures(s)
			if len(c.floods)+len(loadsOf(s, c)) == 0 {
				continue
			}
			if c.missing, err = b.SetUp(c.label, func() error { return b.prepare(ctx, c) }); err != nil {
				return err
			}
			b.cases = append(b.cases, c)
		}
		defer b.publish() // what there is, also when the rest cannot be measured
		return b.measure(ctx)
	})
}

// synproxyBuilder makes the tables of synproxy.
type synproxyBuilder struct {
	rig.Builder
	cases []*synproxyTestCase
}

// synproxyTestCase is a row of the tables: what stands between the floods and the server.
type synproxyTestCase struct {
	name, label string
	install     func(context.Context, *synproxyBuilder, *synproxySite) error
	behind      bool               // the server is behind the host that is flooded
	resets      bool               // it answers ACKs of no connection
	limit       *Flood             // it is a program on the attacker's wire: the limit of what can be done with this flood
	rival       string             // the name of the case that it has to beat; "": none
	article     map[*Flood]float64 // Mpps, for the talk's own

	site    *synproxySite
	missing string
	floods  map[*Flood]*floodCurve
	visits  map[load][]*synproxyVisit
}

// floodCurve is what a case made of a flood, a figure of each round.
type floodCurve struct {
	at        []report.Samples // of each rate of floodRates
	most      report.Samples   // at whatever rate
	able      report.Samples   // likewise, for a receive thread that runs all the time
	disturbed int              // rounds that stayed disturbed
	starved   int              // others, in which the receive thread had nothing to do for a part of the time
}

// load is what is sent to the server together with the clients' connections.
type load struct {
	flood *Flood // nil: nothing
	pps   float64
}

// quiet is no flood.
var quiet = load{}

// barFlood is the rate of floods that clients must not notice, in packets per second.
const barFlood = 1e6

// floodRates are the floods' rates of the curves, in packets per second.
func floodRates(s *rig.Session) []float64 {
	if s.Quick {
		return []float64{0.25e6, 1e6}
	}
	return []float64{0.1e6, 0.25e6, 0.5e6, 1e6, 2e6}
}

// clientRates are those of the floods of SYNs that clients are measured with.
func clientRates(s *rig.Session) []float64 {
	if s.Quick {
		return []float64{barFlood}
	}
	return floodRates(s)
}

// loadsOf are what the clients of a case are measured with: beside a limit, with the flood that it is the limit of.
func loadsOf(s *rig.Session, c *synproxyTestCase) []load {
	loads := []load{quiet}
	if c.limit != nil {
		loads = append(loads, load{c.limit, barFlood})
	} else {
		for _, pps := range clientRates(s) {
			loads = append(loads, load{SYNs, pps})
		}
		loads = append(loads, load{ACKs, barFlood})
	}
	return slices.DeleteFunc(loads, func(l load) bool { return !s.Wants(c.visitRow(l)) })
}

// prepare builds the site of a case.
func (b *synproxyBuilder) prepare(ctx context.Context, c *synproxyTestCase) (err error) {
	if c.site, err = synproxyNewSite(ctx, &b.Builder, c.behind); err != nil {
		return err
	}
	return c.install(ctx, b, c.site)
}

// newFigures makes room for the figures of what the case is measured with.
func (c *synproxyTestCase) newFigures(s *rig.Session) {
	c.floods, c.visits = make(map[*Flood]*floodCurve), make(map[load][]*synproxyVisit)
	for _, f := range []*Flood{SYNs, ACKs} {
		if (c.limit == nil || c.limit == f) && s.Wants(c.floodRow(f)) {
			c.floods[f] = &floodCurve{at: make([]report.Samples, len(floodRates(s)))}
		}
	}
}

// measure takes all rounds, in which the cases take turns.
func (b *synproxyBuilder) measure(ctx context.Context) error {
	b.Steps.Expect(3 * b.Rounds * len(b.cases))
	for round := range b.Rounds {
		for _, f := range []*Flood{SYNs, ACKs} {
			for _, c := range b.cases {
				b.Steps.Show("round %d of %d, %s, %s", round+1, b.Rounds, f.label, c.label)
				b.Steps.Step()
				if err := b.takeFlood(ctx, c, f, uint64(round)+1); err != nil {
					return fmt.Errorf("%s, %s: %w", f.label, c.label, err)
				}
			}
		}
		for _, c := range b.cases {
			b.Steps.Show("round %d of %d, clients, %s", round+1, b.Rounds, c.label)
			b.Steps.Step()
			if err := b.takeClients(ctx, c, uint64(round)+1); err != nil {
				return fmt.Errorf("clients, %s: %w", c.label, err)
			}
		}
	}
	return nil
}

// takeFlood takes one round of a case with a flood, all of the curve and the most.
func (b *synproxyBuilder) takeFlood(ctx context.Context, c *synproxyTestCase, f *Flood, seed uint64) error {
	curve := c.floods[f]
	if curve == nil || c.missing != "" {
		return nil
	}
	var best flooded
	take := func(pps float64) (float64, error) {
		r, err := b.floodOnce(ctx, c, f, pps, seed)
		figure := r.figure(f)
		if figure > best.figure(f) {
			best = r
		}
		return figure, err
	}
	for i, pps := range floodRates(b.Session) {
		figure, err := take(pps)
		if err != nil {
			return err
		}
		curve.at[i] = append(curve.at[i], figure)
	}
	_, err := climb(best.figure(f), report.Choice(b.Quick, []float64{1.2, 2}, []float64{1.1, 1.3, 1.6, 2.2}), take)
	curve.add(f, best)
	return err
}

// add adds the best of a round.
func (c *floodCurve) add(f *Flood, best flooded) {
	c.most, c.able = append(c.most, best.figure(f)), append(c.able, best.able(f))
	if best.disturbed {
		c.disturbed++
	} else if best.ran < 1-idleShare {
		c.starved++
	}
}

// idleShare is the share of the time that the receive thread may be idle before a figure counts as the source's.
const idleShare = 0.05

// floodOnce takes a measurement. One that was disturbed is taken again; of those that all were, the one counts in which
// most arrived.
func (b *synproxyBuilder) floodOnce(ctx context.Context, c *synproxyTestCase, f *Flood, pps float64, seed uint64) (best flooded, err error) {
	batch := 0 // the source's own, which is faster
	if f == SYNs || c.resets {
		batch = floodBatch
	}
	for range b.Tries() {
		r, err := c.site.flood(ctx, f, pps, batch, seed, b.Window)
		if err != nil || !r.disturbed {
			return r, err
		}
		if r.taken >= best.taken {
			best = r
		}
	}
	return best, nil
}

// takeClients takes one round of a case with its clients.
func (b *synproxyBuilder) takeClients(ctx context.Context, c *synproxyTestCase, seed uint64) error {
	if c.missing != "" {
		return nil
	}
	for _, l := range loadsOf(b.Session, c) {
		v, err := b.visitOnce(ctx, c, l, seed)
		if err != nil {
			return err
		}
		c.visits[l] = append(c.visits[l], v)
	}
	return nil
}

// visitOnce takes a measurement with clients. One that was disturbed is taken again; of those that all were, the last
// counts.
func (b *synproxyBuilder) visitOnce(ctx context.Context, c *synproxyTestCase, l load, seed uint64) (v *synproxyVisit, err error) {
	for range b.Tries() {
		if v, err = c.site.visit(ctx, l, visitTime(b.Session), seed); err != nil || !v.disturbed() {
			break
		}
	}
	return v, err
}

// visitTime is how long clients connect for at a time: about a fifth of a phase, as there are so many loads.
func visitTime(s *rig.Session) time.Duration {
	return report.Choice(s.Quick, s.Phase/6, s.Phase/5)
}
