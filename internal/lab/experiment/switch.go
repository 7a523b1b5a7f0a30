package experiment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// What a live move is given: how long it may take at most, and how long is waited for it.
const (
	mostSwitch = 5 * time.Second
	switchWait = 15 * time.Second
)

// attackShare is the share of the packets that an attack makes of all.
const attackShare = 0.95

// quickRate is the rate with Quick: at it the source sleeps between bursts, and leaves its CPU to others.
const quickRate = 70_000

// moveRate is the packets per second that come during a move.
func (b *placementBuilder) moveRate() float64 {
	return report.Choice(b.Quick, quickRate, float64(articleRate))
}

// move is a change of the traffic, and where the rule is to be then.
type move struct {
	what, name string
	share      float64
	to         plan.Stage
	bar        bool // it must be there in time; the first move only leaves the place that there is without any packets
	took       time.Duration
	moved      bool
}

// moves has a policy run whose rule is placed automatically, and measures how long it takes to move when an attack begins
// and when it ends.
func (b *placementBuilder) moves(ctx context.Context) (err error) {
	at, err := b.router()
	if err == nil {
		err = b.InstallNft(ctx, at, untracked)
	}
	if err != nil {
		return err
	}
	held, err := b.HoldWith(ctx, at, strings.Replace(placementPolicy, "%s", "auto", 1),
		control.ApplyOptions{Target: plan.TargetNftables, Costs: b.chooser.model})
	if err != nil {
		return err
	}
	w, err := placementWatch(held.Pins, at.Server, b.chooser.model)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	moves := []*move{
		{what: "nothing but what is forwarded", name: "calm", share: articleShare, to: plan.StageFilter},
		{what: "an attack begins", name: "begin", share: attackShare, to: plan.StageRaw, bar: true},
		{what: "the attack ends", name: "end", share: articleShare, to: plan.StageFilter, bar: true},
	}
	defer b.publishMoves(moves)
	for _, m := range moves {
		b.Steps.Show("%s", m.what)
		if err := b.await(ctx, at, held.Instance, m); err != nil {
			return err
		}
	}
	return nil
}

// await sends until the rule is where it should be, or it has been waited for long enough.
func (b *placementBuilder) await(ctx context.Context, at *rig.Site, in control.Instance, m *move) error {
	source, err := b.Lab.NewSource(at.Out, lab.SourceOptions{
		Flows: b.mixed(m.share, false), CPU: rig.ReceiverCPU, Seed: 1, Rate: b.moveRate(), Urgent: true, Batch: rig.ProbeBatch,
	})
	if err != nil {
		return err
	}
	sending, stop := context.WithTimeout(ctx, switchWait)
	done := make(chan error, 1)
	start := time.Now()
	go func() { done <- source.Run(sending) }()
	defer stop()
	for sending.Err() == nil && !m.moved {
		time.Sleep(20 * time.Millisecond)
		// In the middle of a move there may be nothing to read: only what stays so is an error.
		m.moved, err = ruleAt(ctx, at, in, m.to)
		m.took = time.Since(start)
	}
	stop()
	return errors.Join(err, <-done, source.Close(), ctx.Err())
}

// ruleAt reports whether the rule runs at a stage.
func ruleAt(ctx context.Context, at *rig.Site, in control.Instance, stage plan.Stage) (is bool, err error) {
	err = at.Server.Do(func() error {
		s, err := in.Status(ctx)
		if err != nil {
			return err
		}
		for _, r := range s.Rules {
			is = is || r.Name == ruleName && r.Stage == stage
		}
		return nil
	})
	return is, err
}

// publishMoves publishes how long each took.
func (b *placementBuilder) publishMoves(moves []*move) {
	t := &report.Table{
		Title: fmt.Sprintf("placement: seconds until the rule has moved, with %s packets/s of which an attack is %s",
			report.CountText(int(b.moveRate())), percent(attackShare)),
		Head:  []string{"", "to", "seconds", "bar", ""},
		Notes: []string{"A policy with placement: auto on nftables, and a daemon with the costs above. Once each."},
	}
	for _, m := range moves {
		r := lab.Result{Name: "placement/move/" + m.name, Runs: 1}
		cells := []string{m.what, string(m.to), "", "", ""}
		if m.moved {
			cells[2] = fmt.Sprintf("%.1f", m.took.Seconds())
			r.Metrics = []lab.Metric{{Value: m.took.Seconds(), Unit: "s"}}
		} else {
			cells[4] = fmt.Sprintf("not within %v", switchWait)
			r.Note = cells[4]
		}
		if m.bar {
			bar := report.AtMost(r.Name, m.took.Seconds(), mostSwitch.Seconds())
			cells[3] = bar.String()
			b.Outcome.Bars = append(b.Outcome.Bars, bar)
		}
		b.Outcome.Results = append(b.Outcome.Results, r)
		t.AddRow(cells...)
	}
	b.Outcome.Tables = append(b.Outcome.Tables, t)
}
