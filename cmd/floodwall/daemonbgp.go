// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	bgp "github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/internal/daemon"
	"github.com/floodwall/floodwall/internal/daemon/attack"
	"github.com/floodwall/floodwall/internal/daemon/metrics"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/daemon/upstream"
	"github.com/floodwall/floodwall/policy"
)

// upstreamParts are the parts of the daemon for routers upstream.
type upstreamParts struct {
	side   upstream.Side
	ladder *upstream.Ladder
	obeyed *upstream.Receiver
	report func(daemon.Event)
}

func newUpstreamParts(h operate.Host, side upstream.Side, attacks *attack.Watcher, report func(daemon.Event)) *upstreamParts {
	told := func(text string, err error) { report(daemon.Event{Text: text, Err: err}) }
	return &upstreamParts{
		side: side, report: report,
		ladder: &upstream.Ladder{Side: side, Current: attacks.Current, Report: told},
		obeyed: &upstream.Receiver{Rules: h.Instance, Routes: bgp.NewClient(side.Dir), Report: told},
	}
}

// tell sends the wanted announcements to `floodwall-bgp run`, until ctx ends.
func (p *upstreamParts) tell(ctx context.Context) error {
	p.side.Keep(ctx, func(err error) { p.report(daemon.Event{Err: err}) })
	return nil
}

// climb runs the ladder, which makes announcements during attacks, until ctx ends. The policy limits the announcements.
func (p *upstreamParts) climb(ctx context.Context) error { p.ladder.Run(ctx); return nil }

// figures reads the metrics about the routers upstream. It returns nil when the policy has no routers upstream.
func (p *upstreamParts) figures(ctx context.Context) *metrics.UpstreamFigures {
	u, err := p.side.Policy(ctx)
	if err != nil {
		return nil
	}
	f := &metrics.UpstreamFigures{Kinds: map[string]int{}}
	if u.Auto != policy.StepNone {
		f.Ladder = map[string]uint64{}
		done := p.ladder.Figures()
		for _, r := range upstream.Results {
			f.Ladder[string(r)] = done[r]
		}
	}
	if u.Receive.Max > 0 {
		now := p.obeyed.Figures()
		f.FlowSpec = &metrics.FlowSpecFigures{Routes: map[string]int{"obeyed": now.Routes}, Rules: now.Rules, Changes: now.Changes}
		for _, k := range upstream.Kinds {
			f.FlowSpec.Routes[string(k)] = now.Refused[k]
		}
	}
	st, err := bgp.NewClient(p.side.Dir).Status(ctx)
	if err != nil {
		return f
	}
	upstream.Doubt(u, &st)
	f.Running, f.Announced, f.Withdrawn, f.Refused = true, st.Announced, st.Withdrawn, st.Refused
	for _, s := range st.Sessions {
		f.Sessions = append(f.Sessions, s.State == bgp.Established)
		f.Received += s.Received
	}
	for _, kind := range []bgp.Kind{bgp.FlowSpec, bgp.RTBH} {
		f.Kinds[string(kind)] = 0
	}
	for _, a := range st.Announcements {
		if len(a.Peers) > 0 {
			f.Kinds[string(a.Kind)]++
		}
	}
	return f
}
