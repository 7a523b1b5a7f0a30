// SPDX-License-Identifier: Apache-2.0

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

// placer moves rules of the running policy to the hooks where they cost least, as the traffic changes.
type placer struct {
	in     control.Instance
	costs  func() *cost.Model // returns the present costs of this host; nil without a cost model
	report func(Event)
	warned time.Time     // when the last error was reported
	next   time.Time     // the earliest time of the next sample
	takes  time.Duration // the shortest time that a comparison of placements took

	last     *control.Observed // the last observation; nil when no generation is followed
	decider  decider
	around   facts.Paths
	surveyed time.Time // when `around` was read
}

// compareShare limits the time for comparing placements to 1/compareShare of a CPU, because a policy can have thousands of rules.
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

// look takes a sample and acts on it. After an error, the next call tries again.
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
	// If rules at raw drop all tracked packets, conntrack would still see the packets that these rules accept.
	now.Tracked = now.Tracked || p.around.Tracked
	p.around, p.surveyed = now, time.Now()
	return nil
}

// compare compares the present placement of the rules with the cheapest one. It moves the rules if the cheapest one has been better for a while.
func (p *placer) compare(ctx context.Context, now *control.Observed, costs *cost.Model, mix cost.Mix) error {
	start := time.Now()
	best, err := now.Better(costs, mix)
	if err != nil {
		return err
	}
	p.takes = min(p.takes, time.Since(start)) // the shortest: on a busy machine a comparison waits
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

// move moves rules. After a failure it waits before it tries again, unless another command held the lock.
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
