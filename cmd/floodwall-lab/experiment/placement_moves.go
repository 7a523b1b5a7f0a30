// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/daemon"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/model/cost"
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

// automaticPolicy returns the policy whose rule is placed automatically.
func automaticPolicy() (*control.Compiled, error) {
	return control.CompileSource("placement", []byte("devices: [any]\n"+strings.Replace(placementPolicy, "%s", "auto", 1)))
}

// ruleName is the name of the rule.
const ruleName = "flood"

// choose returns the stage of the policy's rule by the costs of this host, for traffic of which it drops the given number of packets. All other
// packets are forwarded.
func choose(policy *control.Compiled, costs *cost.Model, t plan.Target, arrived, dropped uint64) (plan.Stage, error) {
	mix := cost.Mix{
		Seconds: float64(arrived) / articleRate, Arrived: arrived, Forwarded: arrived - dropped, Rules: map[string]uint64{ruleName: dropped},
	}
	plan, err := policy.Placed(t, costs, mix)
	if err != nil {
		return "", err
	}
	for i, r := range plan.Program.Rules {
		if r.Name == ruleName {
			return plan.Rules[i].Stage, nil
		}
	}
	return "", fmt.Errorf("the plan has no rule %q", ruleName)
}

// above returns the row's cost divided by the cost of the cheapest other row, as the median of the rounds; 1 if the row is the cheapest.
func above(r *rig.Row, others ...*rig.Row) float64 {
	most := 1.0
	for _, o := range others {
		most = max(most, r.By(o, "ns/op").Median())
	}
	return most
}

// crossing returns the share of dropped packets above which one row costs less than the other. Both have a row for each share. The cost is a linear
// function of the share: the cost of a dropped packet and the cost of another packet, each times its share. So the difference of two costs is linear,
// too. The result is the zero of the least squares line of this difference; NaN if the zero is not between 0 and 1.
func crossing(shares []float64, one, other []*rig.Row) float64 {
	var n, x, y, xx, xy float64
	for i, share := range shares {
		d := one[i].Figure("ns/op").Minus(other[i].Figure("ns/op")).Median()
		n, x, y, xx, xy = n+1, x+share, y+d, xx+share*share, xy+share*d
	}
	slope := (n*xy - x*y) / (n*xx - x*x)
	at := -(y - slope*x) / n / slope
	if !(at > 0 && at < 1) {
		return math.NaN()
	}
	return at
}

// watcherName is the name of this program as a process that does the work of `floodwall daemon`.
const watcherName = "floodwall-watcher"

// Roles is like lab.Roles, but for a program that also has experiments. A process that watches an instance must have all its threads in the
// instance's network namespace. This needs a process of its own.
func Roles() { lab.Roles(map[string]func() error{watcherName: watchHere}) }

// watchHere does the work of this process: it watches the instance that is pinned in the file system that the process inherited.
func watchHere() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var model cost.Model
	if err := json.NewDecoder(os.Stdin).Decode(&model); err != nil {
		return err
	}
	in := control.Instance{Dir: fmt.Sprintf("/proc/self/fd/%d/%s", inheritedPins, rig.Pinned)}
	return daemon.Watch(ctx, in, "", func() *cost.Model { return &model }, func(e daemon.Event) { fmt.Fprintln(os.Stderr, e.Text, e.Err) })
}

// inheritedPins is the first descriptor that a process inherits after the usual three.
const inheritedPins = 3

// placementWatch starts a process in a host. The process watches the instance that is pinned in p.
func placementWatch(p *rig.Pins, h *lab.Host, m *cost.Model) (*lab.Process, error) {
	model, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	c := exec.Command("/proc/self/exe")
	c.Args = []string{watcherName}
	c.Stdin, c.ExtraFiles = bytes.NewReader(model), []*os.File{p.Root}
	return h.Start(c, nil)
}

// watcherPatience is the longest time that the process may take to end.
const watcherPatience = 20 * time.Second

// stopWatcher ends the process. If the process failed, the error has its messages.
func stopWatcher(w *lab.Process) error {
	if w.Stop(watcherPatience); w.Err != nil {
		return fmt.Errorf("watcher: %w: %s", w.Err, w.Complaint())
	}
	return nil
}
