// SPDX-License-Identifier: Apache-2.0

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
	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// The limits of a live move: the longest time that it may take, and the time after which await gives up.
const (
	mostSwitch = 5 * time.Second
	switchWait = 15 * time.Second
)

// attackShare is the share of an attack's packets in all packets.
const attackShare = 0.95

// quickRate is the packet rate with Quick. At this rate the source sleeps between bursts, and leaves its CPU to other threads.
const quickRate = 70_000

// moveRate returns the packet rate during a move, in packets per second.
func (b *placementBuilder) moveRate() float64 {
	return report.Choice(b.Quick, quickRate, float64(articleRate))
}

// moves runs a policy with an automatically placed rule. It measures how long the rule takes to move when an attack starts, and when the attack ends.
func (b *placementBuilder) moves(ctx context.Context) (err error) {
	at, err := b.router()
	if err == nil {
		err = b.Guard(ctx, at, rig.Guard{Nft: untracked})
	}
	if err != nil {
		return err
	}
	held, err := b.Hold(ctx, at, strings.Replace(placementPolicy, "%s", "auto", 1), control.ApplyOptions{Target: plan.TargetNftables, Costs: b.costs})
	if err != nil {
		return err
	}
	w, err := placementWatch(held.Pins, at.Server, b.costs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopWatcher(w)) }()
	t := &rig.Table{
		Title: fmt.Sprintf("placement: seconds until the rule has moved, with %s packets/s of which an attack is %s",
			report.CountText(int(b.moveRate())), percent(attackShare)),
		Results: []string{"s"},
		Columns: []rig.Column{
			{Head: "to", Text: func(r *rig.Row) string { return r.Kind }}, {Head: "seconds", Unit: "s", Show: rig.Digits(1, 1)},
		},
		Marks: []rig.Mark{{Sign: fmt.Sprintf("not within %v", switchWait), On: func(r *rig.Row) bool { return len(r.Figure("s")) == 0 }}},
		Notes: []string{"A policy with placement: auto on nftables, and a daemon with the costs above. Once each."},
	}
	// A change of the traffic, and the stage that the rule must move to.
	move := func(label, name string, share float64, to plan.Stage) *rig.Row {
		r := &rig.Row{Name: "move/" + name, Label: label, Kind: string(to), Take: func(ctx context.Context, _ int) (rig.Reading, error) {
			return b.await(ctx, at, held.Instance, share, to)
		}}
		t.Rows = append(t.Rows, r)
		return r
	}
	move("nothing but what is forwarded", "calm", articleShare, plan.StageFilter) // this only moves the rule to the stage for no traffic, and has no bar
	begins := move("an attack begins", "begin", attackShare, plan.StageRaw)
	ends := move("the attack ends", "end", articleShare, plan.StageFilter)
	begins.Goals = []rig.Goal{{Unit: "waited-s", Bound: mostSwitch.Seconds(), Most: true}}
	ends.Goals = begins.Goals
	defer t.Publish(b.Outcome)
	once := *b.Session
	once.Rounds = 1
	return once.TakeAll(ctx, t)
}

// await sends packets of which a share is dropped, until the rule is at a stage or the time is over.
func (b *placementBuilder) await(ctx context.Context, at *rig.Site, in control.Instance, share float64, to plan.Stage) (rig.Reading, error) {
	source, err := b.Lab.NewSource(at.Out, lab.SourceOptions{
		Flows: b.mixed(share, false), CPU: rig.ReceiverCPU, Seed: 1, Rate: b.moveRate(), Urgent: true, Batch: rig.ProbeBatch,
	})
	if err != nil {
		return nil, err
	}
	sending, stop := context.WithTimeout(ctx, switchWait)
	done := make(chan error, 1)
	start := time.Now()
	go func() { done <- source.Run(sending) }()
	defer stop()
	read, moved := rig.Reading{}, false
	for sending.Err() == nil && !moved {
		time.Sleep(20 * time.Millisecond)
		// During a move, reading may fail. Only an error that persists counts.
		moved, err = ruleAt(ctx, at, in, to)
		read["waited-s"] = time.Since(start).Seconds()
	}
	if moved {
		read["s"] = read["waited-s"]
	}
	stop()
	return read, errors.Join(err, <-done, source.Close(), ctx.Err())
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
