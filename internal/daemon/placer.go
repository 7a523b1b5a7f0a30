package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/cost"
	"github.com/floodwall/floodwall/internal/os/periodic"
)

// placer moves rules of the policy that runs to where they cost least, as the packets change.
type placer struct {
	in     control.Instance
	costs  func() *cost.Model // of this host at the moment, nil when there are none
	report func(Event)
	warned time.Time     // when the last error was reported
	next   time.Time     // when to look again, at the earliest
	takes  time.Duration // to compare placements, at best

	last     *control.Observed // nil when nothing is followed
	decider  decider
	around   facts.Paths
	surveyed time.Time // when around was
}

// compareShare bounds the time for comparing placements to 1/compareShare, because policies with thousands of rules must not take a CPU.
const compareShare = 10

// surveyHolds is the time for which a survey is valid. A survey starts nft twice.
const surveyHolds = 30 * time.Second

// place moves rules until ctx ends.
func (w *watcher) place(ctx context.Context, costs func() *cost.Model) {
	p := &placer{in: w.in, costs: costs, report: w.report}
	for periodic.Wait(ctx, sampleEvery) {
		if err := p.look(ctx); err != nil && ctx.Err() == nil && time.Since(p.warned) >= warnAgain {
			p.warned = time.Now()
			p.report(Event{Err: fmt.Errorf("placement: %w", err)})
		}
	}
}

// look takes a sample and acts on it. Errors are left to the next look.
func (p *placer) look(ctx context.Context) error {
	if time.Now().Before(p.next) {
		return nil
	}
	costs := p.costs()
	if costs == nil {
		p.last = nil
		return nil
	}
	last := p.last
	now, err := p.in.Observe(ctx, last)
	if err != nil {
		return err
	}
	if p.last = now; now == nil {
		return nil
	}
	if last == nil || last.Source != now.Source {
		p.decider, p.takes = decider{since: time.Now()}, time.Hour
	}
	if err := p.survey(ctx, now.Devices()); err != nil {
		return err
	}
	mix := now.Since(last)
	if mix == nil {
		return nil
	}
	p.around.Fill(mix)
	return p.compare(ctx, now, costs, *mix)
}

// survey finds the paths of packets through this host, unless the last survey is still valid.
func (p *placer) survey(ctx context.Context, devices []string) error {
	if time.Since(p.surveyed) < surveyHolds {
		return nil
	}
	now, err := facts.Survey(ctx, devices)
	if err != nil {
		return err
	}
	// If rules at raw drop all packets that conntrack knew, conntrack would still look at those that they pass.
	now.Tracked = now.Tracked || p.around.Tracked
	p.around, p.surveyed = now, time.Now()
	return nil
}

// compare compares where rules are with where they cost least, and moves them if that has been so for a while.
func (p *placer) compare(ctx context.Context, now *control.Observed, costs *cost.Model, mix cost.Mix) error {
	start := time.Now()
	best, err := now.Better(costs, mix)
	if err != nil {
		return err
	}
	p.takes = min(p.takes, time.Since(start)) // a busy machine may have held it up
	p.next = time.Now().Add((compareShare - 1) * p.takes)
	var o offer
	if best != nil {
		o = offer{saves: best.Saves(), costs: best.Costs(), must: best.Must()}
	}
	if !p.decider.decide(time.Now(), o) {
		return nil
	}
	return p.move(ctx, now, best)
}

// move moves rules. One that fails is not tried again at once, unless another command was in the way.
func (p *placer) move(ctx context.Context, now *control.Observed, to *control.Candidate) error {
	m, err := p.in.Move(ctx, now, to)
	switch {
	case errors.Is(err, control.ErrChanged), errors.Is(err, datapath.ErrLocked), errors.Is(err, datapath.ErrNotLoaded):
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
