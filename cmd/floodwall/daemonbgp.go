package main

import (
	"context"

	"github.com/floodwall/floodwall/internal/attack"
	"github.com/floodwall/floodwall/internal/bgp/upstream"
	bgp "github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/internal/daemon"
	"github.com/floodwall/floodwall/internal/metrics"
)

// upstreamTasks tell `floodwall bgp run` what is wanted, and announce by themselves as far as the policy says.
func upstreamTasks(side upstream.Side, attacks *attack.Watcher, report func(daemon.Event)) (tell, climb func(context.Context) error) {
	ladder := &upstream.Ladder{Side: side, Current: attacks.Current, Report: func(text string, err error) { report(daemon.Event{Text: text, Err: err}) }}
	tell = func(ctx context.Context) error {
		side.Keep(ctx, func(err error) { report(daemon.Event{Err: err}) })
		return nil
	}
	return tell, func(ctx context.Context) error { ladder.Run(ctx); return nil }
}

// upstreamFigures reads the figures of the routers upstream.
func upstreamFigures(side upstream.Side) func(context.Context) *metrics.UpstreamFigures {
	return func(ctx context.Context) *metrics.UpstreamFigures {
		if _, err := side.Policy(ctx); err != nil {
			return nil
		}
		st, err := bgp.NewClient(side.Dir).Status(ctx)
		if err != nil {
			return &metrics.UpstreamFigures{}
		}
		f := &metrics.UpstreamFigures{Running: true, Kinds: map[string]int{}, Announced: st.Announced, Withdrawn: st.Withdrawn, Refused: st.Refused}
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
}
