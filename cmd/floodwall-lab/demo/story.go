// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// FleetOptions are the choices of a demonstration.
type FleetOptions struct {
	Duration time.Duration // of each phase; 0: 4 s
	Log      func(string)  // called with each event, line by line

	Find func(program string) (string, error) // returns the path of a program of Floodwall
}

// fleetShow is a running demonstration.
type fleetShow struct {
	options FleetOptions
	site    *site
	floods  []*flood
	summary *FleetSummary

	upstream uint64 // number of packets that the router has dropped because of the announcement
}

// RunFleet runs the demonstration in a process that has the Namespaces. It returns an error if the demonstration was impossible. Summary.Trouble
// returns faults of Floodwall.
func RunFleet(ctx context.Context, o FleetOptions) (*FleetSummary, error) {
	if o.Duration == 0 {
		o.Duration = 4 * time.Second
	}
	if err := haveBIRD(); err != nil {
		return nil, err
	}
	if err := furnish(); err != nil {
		return nil, err
	}
	w := &fleetShow{options: o, summary: &FleetSummary{Policy: Policy + upstreamOf(nodeAddresses[0].Addr()), Router: RouterPolicy + upstreamOf(routerAddress) + receives}}
	err := lab.Run(ctx, w.run)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return w.summary, nil
}

func (w *fleetShow) run(ctx context.Context, l *lab.Lab) (err error) {
	if w.summary.Machine, err = lab.DescribeMachine(); err != nil {
		return err
	}
	if w.site, err = newSite(l, w.options); err != nil {
		return err
	}
	defer w.site.end()
	defer w.stopFloods()
	if err := w.site.begin(ctx); err != nil {
		return err
	}
	for _, p := range []struct {
		name, says            string
		before, during, after step
	}{
		{"no attack", "clients use all three web servers", nil, nil, nil},
		{"attack", fmt.Sprintf("%d senders attack web-1, and when it has banned them, all three", howMany), nil, w.attack, w.lift},
		{"line full", "a flood of reflected packets fills the line from the router to web-1, " + lineRate + "/s: the node drops all that arrives", w.site.limitLine, w.fill, nil},
		{"router drops", "web-1 announces this flood to the router, which drops it before the line", w.dropUpstream, w.goesOn, w.withdraw},
		{"afterwards", "all is lifted, and the senders of the attack use all three as others do", nil, w.usual, nil},
	} {
		w.options.Log(p.name + ": " + p.says)
		if err := p.before.take(ctx); err != nil {
			return err
		}
		if err := w.phase(ctx, p.name, p.during); err != nil {
			return err
		}
		if err := p.after.take(ctx); err != nil {
			return err
		}
	}
	return nil
}

// step is an action of a phase, or nil.
type step func(context.Context) error

func (s step) take(ctx context.Context) error {
	if s == nil {
		return nil
	}
	return s(ctx)
}

// goesOn waits for the length of a phase, while the traffic of the phase before continues.
func (w *fleetShow) goesOn(ctx context.Context) error { return w.rest(ctx, time.Now()) }

// attack floods the first node from all senders until all nodes have banned the senders. Then it floods all nodes.
func (w *fleetShow) attack(ctx context.Context) error {
	began := time.Now()
	if err := w.flood(ctx, 0, attackRate); err != nil {
		return err
	}
	at, err := w.awaitBans(ctx)
	if err != nil {
		return err
	}
	t := &w.summary.Times
	t.FirstBan, t.Everywhere = at.first().Sub(began).Seconds(), at.longest().Seconds()
	if err := w.judged(ctx, w.site.nodes[0]); err != nil {
		return err
	}
	banned, err := w.count(ctx)
	if err != nil {
		return err
	}
	for to := 1; to < nodes; to++ {
		if err := w.flood(ctx, to, attackRate); err != nil {
			return err
		}
	}
	if err := w.rest(ctx, began); err != nil {
		return err
	}
	if err := w.stopFloods(); err != nil {
		return err
	}
	after, err := w.settled(ctx)
	for i := range after {
		w.summary.AfterBan[i] = after[i].since(banned[i])
	}
	return err
}

// rest waits until the end of a phase, but at least for a second.
func (w *fleetShow) rest(ctx context.Context, began time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(max(time.Second, time.Until(began.Add(w.options.Duration)))):
		return nil
	}
}

// lift makes the controller lift the bans at all nodes.
func (w *fleetShow) lift(ctx context.Context) error {
	args := []string{"floodwall-hub", "unban", "--dir", filepath.Join(fleetStateDir, "hub")}
	for a := senders.Addr(); senders.Contains(a); a = a.Next() {
		args = append(args, a.String())
	}
	began := time.Now()
	if _, err := w.site.run(ctx, &w.site.hub, args...); err != nil {
		return err
	}
	if err := w.awaitLifts(ctx); err != nil {
		return err
	}
	w.summary.Times.Lifted = time.Since(began).Seconds()
	return nil
}

// usual makes the senders send to all nodes at a normal rate.
func (w *fleetShow) usual(ctx context.Context) error {
	began := time.Now()
	for to := range nodes {
		if err := w.flood(ctx, to, usualRate); err != nil {
			return err
		}
	}
	return w.rest(ctx, began)
}
