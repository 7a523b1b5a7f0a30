// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// The goals for the clients behind Floodwall, with a flood of barFlood.
const (
	leastCompleted = 0.999 // of the connections
	mostSlower     = 2     // multiple of the 99th percentile of the connect time without the flood
	wholeFlood     = 0.95  // of barFlood; with less of it, the row shows nothing
	evenFlood      = 0.50  // the same for the weakest part of watchPart
)

// synproxyClientRate is the connections per second of all clients: a fifth of the talk's. The clients share the CPU of the attacker and have a higher
// priority. With more connections, the attacker would lack the CPU time for barFlood.
const synproxyClientRate = 2_000

// synproxyClientTimeout returns how long clients wait for an answer, by the duration for which they connect. It is at most the time after which a
// lost SYN is sent again.
func synproxyClientTimeout(duration time.Duration) time.Duration { return min(time.Second, 5*duration) }

// request is the request of each client. nginx answers in one segment.
var request = []byte("GET / HTTP/1.0\r\n\r\n")

// mostStalled is the longest time that the clients' thread may be without CPU. Nothing of the experiment uses the CPU for longer. The attacker never
// sleeps, so the kernel gives the CPU to waiting ordinary processes for 50 ms of each second (kernel/sched/deadline.c, dl_server).
const mostStalled = 5 * time.Millisecond

// visitTime returns how long clients connect in a visit: about a fifth of a phase, because there are five times as many loads.
func visitTime(s *rig.Session) time.Duration {
	return report.Choice(s.Quick, s.Phase/6, s.Phase/5)
}

// clientsTable returns the clients' results, without a flood and with floods of barFlood.
func clientsTable(s *rig.Session) *rig.Table {
	const chart = "clients' connections per second over the rate of a SYN flood"
	t := &rig.Table{
		Title: "synproxy: clients beside a flood", Doing: "clients, ",
		Results: []string{"completed", "connections/s", "connect-p50-ns", "connect-p99-ns", "answered-p99-ns", "entries", "flood-pps", "least-flood-pps"},
		Columns: []rig.Column{
			{Head: "completed", Unit: "completed", Show: rig.Percent}, {Head: "min .. max", Unit: "completed", Show: rig.PercentRange},
			{Head: "per s", Unit: "connections/s", Show: rig.Digits(0, 1)},
			{Head: "connect: half", Unit: "connect-p50-ns", Show: rig.Millis}, {Head: "99%", Unit: "connect-p99-ns", Show: rig.Millis},
			{Head: "x no flood", Unit: "x-quiet", Show: rig.Digits(2, 1)}, {Head: "answered: 99%", Unit: "answered-p99-ns", Show: rig.Millis},
			{Head: "flood Mpps", Unit: "flood-pps", Show: func(s report.Samples) string { return report.Choice(s.Longest() > 0, rig.Digits(2, 1e6)(s), "") }},
			{Head: "entries", Unit: "entries", Show: func(s report.Samples) string { return report.CountText(int(s.Longest())) }},
		},
		Marks: []rig.Mark{
			{Sign: "~", On: func(r *rig.Row) bool {
				return r.Figure("stalled-ns").Longest() > float64(mostStalled) || r.Figure("completed").Unsteady()
			},
				Note: fmt.Sprintf("~ unsteady: others had the clients' CPU for more than %v at a time, or the rounds differ by more than %.0f%%.", mostStalled, 100*report.UnsteadySpread)},
			{Sign: "v", On: weak, Note: fmt.Sprintf("v the host took less than %.0f%% of the flood, or less than %.0f%% in some %v: no bar is judged.", 100*wholeFlood, 100*evenFlood, watchPart)},
		},
		Notes: []string{
			fmt.Sprintf("%s connections per second are due, a fifth of the talk's as two cores do all the work, from 250 addresses, each in", report.CountText(synproxyClientRate)),
			fmt.Sprintf("a /24 of its own; one is completed when its answer has come within %v. Times count from when it was due.", synproxyClientTimeout(visitTime(s))),
			fmt.Sprintf("Clients and flood have a wire each; the two meet in CPU %d, where nginx runs when its receive threads do not.", rig.ReceiverCPU),
			"Who is overwhelmed by the flood there leaves nginx nothing; in the kernel's own softirq threads, nginx would get a share.",
			"XDP_TX and XDP_DROP are on the attacker's wire alone, in front of no other defence: what the lab itself makes of the flood.",
			"x no flood: only rounds without one count in which nobody else had the clients' CPU.",
			"Entries are those of the flooded host's conntrack table at the end.",
			fmt.Sprintf("Medians of %d rounds of %v, in which the rows take turns.", s.Rounds, visitTime(s)),
		},
		Disturbed: func(r rig.Reading) bool { return r["stalled-ns"] > float64(mostStalled) },
	}
	t.Shares = []rig.Share{{Unit: "x-quiet", Of: "some-p99-ns", Base: "calm-p99-ns", By: func(r *rig.Row) *rig.Row {
		return report.Choice(r.Load == quiet.name(), nil, t.Find("clients/"+r.Kind+"/"+quiet.name()))
	}}}
	t.After = func(o *report.Outcome) {
		var guards []*rig.Row
		for _, g := range synproxyGuards() {
			if g.limit == nil {
				guards = append(guards, &rig.Row{Name: "clients/" + g.name, Label: g.label})
			}
		}
		rateChart(o, chart, chart, "connections/s", append([]float64{0}, clientRates(s)...), guards, 1, func(r *rig.Row, pps float64) report.Samples {
			if found := t.Find(r.Name + "/" + report.Choice(pps == 0, quiet, load{SYNs, pps}).name()); found != nil {
				return found.Figure("connections/s")
			}
			return nil
		})
	}
	return t
}

// weak reports whether the flood during a visit was too weak. This can happen because the attacker shares a CPU with the clients.
func weak(r *rig.Row) bool {
	return r.Figure("flood-share").Median() < wholeFlood || r.Figure("least-share").Median() < evenFlood
}

// clientsRow describes the clients of a guard during a flood. Floods of other rates than barFlood appear only in the chart.
func clientsRow(s *rig.Session, at *synproxySite, setup *rig.Setup, g synproxyGuard, l load) *rig.Row {
	r := &rig.Row{
		Name: "clients/" + g.name + "/" + l.name(), Label: g.label + ": " + l.label(), Load: l.name(), Kind: g.name, Setup: setup,
		Hidden: l != quiet && l.pps != barFlood,
		Take: func(ctx context.Context, round int) (rig.Reading, error) {
			return at.visit(ctx, l, visitTime(s), uint64(round)+1)
		},
	}
	if g.rival == "" {
		return r
	}
	if l.pps == barFlood {
		r.Goals = append(r.Goals,
			rig.Goal{Unit: "completed", What: "completed", Bound: leastCompleted, Unless: weak},
			rig.Goal{Unit: "x-quiet", What: "connect p99 x quiet", Bound: mostSlower, Most: true, Unless: weak})
	}
	if !g.behind {
		r.Goals = append(r.Goals, rig.Goal{Unit: "entries", What: "entries", Bound: 0, Most: true, Worst: true})
	}
	return r
}

// visit makes clients connect for a duration during a flood.
func (s *synproxySite) visit(ctx context.Context, l load, duration time.Duration, seed uint64) (rig.Reading, error) {
	if err := s.Server.FlushConntrack(); err != nil {
		return nil, err
	}
	var flows []lab.Flow
	if l.flood != nil {
		flows = []lab.Flow{l.flood.Flow(s.web.Addr(), s.web.Port())}
	}
	stop, err := s.begin(ctx, flows, l.pps, seed)
	if err != nil {
		return nil, err
	}
	sum, err := lab.Connect(ctx, lab.ConnectOptions{
		Host: s.clients.Host, Server: s.web, From: clientAddrs(), Request: request,
		Rate: synproxyClientRate, Duration: duration, Timeout: synproxyClientTimeout(duration), CPU: rig.SourceCPU, Urgent: true,
	})
	mean, least, stopped := stop()
	table, looked := s.Server.Conntrack()
	return clientsReading(sum, l, mean, least, table.Entries), errors.Join(err, stopped, looked)
}

// clientsReading returns the figures of a visit. The parameters mean and least are the packets per second of the flood that the host handled, over
// the whole time and in its weakest part. The parameter entries is the final size of the host's table of connections. A visit without a flood in
// which others delayed the clients' CPU is no reference.
func clientsReading(sum lab.ConnectSummary, l load, mean, least float64, entries int) rig.Reading {
	p99 := float64(sum.Connect.P99)
	read := rig.Reading{
		"completed": sum.Share(), "connections/s": sum.Share() * synproxyClientRate, "connect-p50-ns": float64(sum.Connect.P50), "connect-p99-ns": p99,
		"answered-p99-ns": float64(sum.Answered.P99), "entries": float64(entries), "stalled-ns": float64(sum.Stalled),
		"flood-pps": mean, "least-flood-pps": least,
	}
	if p99 > 0 {
		read["some-p99-ns"] = p99
		if sum.Stalled <= mostStalled {
			read["calm-p99-ns"] = p99
		}
	}
	if l.flood != nil {
		read["flood-share"], read["least-share"] = mean/l.pps, least/l.pps
	}
	return read
}
