package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/floodwall/floodwall/internal/cost"
	"github.com/floodwall/floodwall/internal/datapath"
)

// placer moves rules of the policy that runs to where they cost least, as the packets change.
type placer struct {
	in     Instance
	costs  func() *cost.Model // of this host at the moment, nil when there are none
	report func(Event)
	warned time.Time     // when the last error was reported
	next   time.Time     // when to look again, at the earliest
	takes  time.Duration // to compare placements, at best

	source   string // of what is followed, "" for nothing
	policy   *Compiled
	last     *sample
	decider  decider
	around   surroundings
	surveyed time.Time // when around was
}

// modesty is how much longer than it takes to compare placements nothing is compared: policies with thousands of rules must
// not take a CPU.
const modesty = 9

// surveyHolds is how long a survey is believed.
const surveyHolds = 10 * time.Second

// place moves rules until ctx ends.
func (in Instance) place(ctx context.Context, costs func() *cost.Model, report func(Event)) {
	p := &placer{in: in, costs: costs, report: report}
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := p.look(ctx); err != nil && ctx.Err() == nil && time.Since(p.warned) >= warnAgain {
			p.warned = time.Now()
			p.report(Event{Err: fmt.Errorf("placement: %w", err)})
		}
	}
}

// look takes a sample and does what follows from it. What cannot be told now is for the next look.
func (p *placer) look(ctx context.Context) error {
	if time.Now().Before(p.next) {
		return nil
	}
	costs := p.costs()
	if costs == nil {
		p.source = ""
		return nil
	}
	var g *generation
	var mix *cost.Mix
	err := p.in.reading(ctx, func(l *live) (err error) {
		g = l.generations[0]
		if l.trial != nil || len(l.generations) > 1 || g.manifest.Fixed != "" {
			g = nil
			return nil
		}
		mix, err = p.sample(ctx, l, g)
		return err
	})
	if g == nil || errors.Is(err, datapath.ErrNotLoaded) {
		p.source = ""
	}
	if errors.Is(err, datapath.ErrNotLoaded) {
		return nil
	}
	if mix == nil || err != nil {
		return err
	}
	return p.compare(ctx, g, costs, *mix)
}

// sample is what was observed since the last one, nil when there was none of the policy that runs.
func (p *placer) sample(ctx context.Context, l *live, g *generation) (*cost.Mix, error) {
	if err := p.follow(ctx, l, g); err != nil || p.policy == nil {
		return nil, err
	}
	of, err := l.tallies(ctx, g)
	if err != nil {
		return nil, err
	}
	now, err := observe(g.manifest.Devices, of)
	if err != nil {
		return nil, err
	}
	last := p.last
	if p.last = now; last == nil {
		return nil, nil
	}
	mix := now.since(last)
	p.around.fill(&mix)
	return &mix, nil
}

// follow reads the policy that runs, unless it is known.
func (p *placer) follow(ctx context.Context, l *live, g *generation) (err error) {
	if time.Since(p.surveyed) >= surveyHolds {
		now, err := survey(ctx, g.manifest.Devices)
		if err != nil {
			return err
		}
		// Where rules at raw drop all that conntrack knew, it still would look at what they let by.
		now.tracked = now.tracked || p.around.tracked
		p.around, p.surveyed = now, time.Now()
	}
	if g.manifest.Source == p.source {
		return nil
	}
	p.source, p.last, p.decider, p.takes = g.manifest.Source, nil, decider{since: time.Now()}, time.Hour
	p.policy, err = readSource(l.state, g)
	return err
}

// compare compares where rules are with where they cost least, and moves them if that has been so for a while.
func (p *placer) compare(ctx context.Context, g *generation, costs *cost.Model, mix cost.Mix) error {
	begun := time.Now()
	best, err := prospectOf(p.policy, g.manifest, costs, mix)
	if err != nil {
		return err
	}
	p.takes = min(p.takes, time.Since(begun)) // a busy machine may have held it up
	p.next = time.Now().Add(modesty * p.takes)
	var o offer
	if best != nil {
		o = best.offer()
	}
	if !p.decider.decide(time.Now(), o) {
		return nil
	}
	return p.move(ctx, g, best)
}

// move moves rules. One that fails is not tried again at once, unless another command was in the way.
func (p *placer) move(ctx context.Context, g *generation, to *prospect) error {
	m, err := p.in.replace(ctx, g, p.policy, to)
	switch {
	case errors.Is(err, errOther), errors.Is(err, datapath.ErrLocked), errors.Is(err, datapath.ErrNotLoaded):
		return nil
	case err != nil:
		p.decider.failed(time.Now())
		p.report(Event{Err: fmt.Errorf("placement: rules stay where they are: %w", err)})
		return nil
	}
	p.decider.moved(time.Now())
	p.report(Event{Text: "placement: " + m.String()})
	return nil
}
