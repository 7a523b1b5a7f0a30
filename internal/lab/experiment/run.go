package experiment

import (
	"context"
	"fmt"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// shares are the shares of dropped packets in the sweep.
func (b *placementBuilder) shares() []float64 {
	if b.Quick {
		return []float64{0.0001, 0.01, 0.1, 0.2, 0.5, 1}
	}
	return []float64{0.0001, articleShare, 0.001, 0.003, 0.01, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1}
}

// rowRounds is how often a row is measured, and for how long each time: often, as medians of ratios are to tell some
// percent.
func rowRounds(s *rig.Session) (int, time.Duration) { return 4*s.Rounds + 1, s.Window / 2 }

// compare measures the ways that which picks side by side, with these flows at the article's rate. set gets the probe of
// each.
func (b *placementBuilder) compare(
	ctx context.Context, what string, flows []lab.Flow, which func(*way) bool, set func(*way, *rig.Probe),
) error {
	var all []*rig.Probe
	for _, w := range b.ways {
		if w.missing != "" || !which(w) {
			continue
		}
		p := &rig.Probe{Label: what + ", " + w.label, Subject: w.subject, Flows: flows}
		all = append(all, p)
		set(w, p)
	}
	rounds, window := rowRounds(b.Session)
	return b.Probes(ctx, all, rounds, articleRate, uint64(articleRate*window.Seconds()))
}

// drops is the first test: all is dropped.
func (b *placementBuilder) drops(ctx context.Context) error {
	defer b.publishDrops()
	return b.compare(ctx, "all dropped", []lab.Flow{floodFlow}, func(w *way) bool { return !w.none },
		func(w *way, p *rig.Probe) { w.drops = p })
}

// streams is the second test: nearly all is forwarded. The article does not say where its streams come from: they are
// measured from other sources, and unless all is to be quick, also from that of the rule.
func (b *placementBuilder) streams(ctx context.Context) error {
	defer b.publishStreams()
	which := func(w *way) bool { return !w.all }
	err := b.compare(ctx, "forwarded", b.mixed(articleShare, false), which, func(w *way, p *rig.Probe) { w.streams = p })
	if err != nil || b.Quick {
		return err
	}
	return b.compare(ctx, "forwarded from the rule's source", b.mixed(articleShare, true), which, func(w *way, p *rig.Probe) { w.own = p })
}

// sweep measures the lines of the chart, share by share.
func (b *placementBuilder) sweep(ctx context.Context) error {
	defer b.publishSweep()
	for _, share := range b.shares() {
		err := b.compare(ctx, percent(share)+" dropped", b.mixed(share, false), func(w *way) bool { return w.swept },
			func(w *way, p *rig.Probe) { w.sweep = append(w.sweep, p) })
		if err != nil {
			return err
		}
	}
	return nil
}

// percent is a share as people write it.
func percent(share float64) string { return fmt.Sprintf("%.3g%%", 100*share) }
