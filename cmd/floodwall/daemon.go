// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	bgp "github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/internal/daemon"
	"github.com/floodwall/floodwall/internal/daemon/api"
	"github.com/floodwall/floodwall/internal/daemon/attack"
	"github.com/floodwall/floodwall/internal/daemon/integrations"
	"github.com/floodwall/floodwall/internal/daemon/metrics"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/daemon/upstream"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/fleet/node"
	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/os/periodic"
)

func daemonCommand(e *env) *cobra.Command {
	var run, bgpDir string
	c := &cobra.Command{
		Use:   "daemon",
		Short: "ban offenders, move rules to where they cost least, repair, and serve the API",
		Long: "Daemon bans offenders, repairs what other tools remove, moves rules to where they cost least, and renews the keys of SYN cookies.\n" +
			"It serves an API and a live page: for reading on read.sock and at the policy's `listen`, and for changes on control.sock (root only).",
		Example: "  floodwall daemon\n" +
			"  curl --unix-socket /run/floodwall/read.sock http://floodwall/v1/health\n" +
			"  ssh -N -L 9810:/run/floodwall/read.sock root@SERVER    # on your own machine: the page of SERVER at http://127.0.0.1:9810/",
		Args: cli.None,
		RunE: func(c *cobra.Command, _ []string) error { return runDaemon(c.Context(), e, run, bgpDir) },
	}
	c.Flags().BoolVar(&e.JSON, "json", false, "print each event as a JSON object on one line, as /v1/events has it")
	c.Flags().StringVar(&run, "run", "", "`directory` of the sockets (default "+api.DefaultDir+" for the default --bpffs, else a directory below it)")
	c.Flags().StringVar(&bgpDir, "bgp", "", "`directory` of the socket of `floodwall-bgp run` (default "+bgp.DefaultDir+" for the default --bpffs)")
	return c
}

func runDaemon(ctx context.Context, e *env, run, bgpDir string) error {
	h, err := e.Host()
	if err != nil {
		return err
	}
	if run == "" {
		run = api.Dir(e.BPFFS, datapath.DefaultDir)
	}
	if e.Getenv("GOGC") == "" {
		debug.SetGCPercent(daemonGC)
	}
	go giveUpStart(ctx)
	h.Instance.Marks = periodic.NewMarks(func() string { return datapath.Mark(h.Instance.Dir) })
	h.Instance.Asked = &periodic.Answer[control.RunningPolicy]{Marks: h.Instance.Marks}
	h.Tap = sample.NewTap(h.Instance)
	events := api.NewEvents()
	if e.JSON {
		lines := json.NewEncoder(e.Stdout)
		events.Each = func(event api.Event) { lines.Encode(event) } // the reader may have gone, but the daemon goes on
	}
	audit := slog.New(slog.NewTextHandler(e.Stderr, nil))
	if !e.JSON && integrations.Connected() {
		log := integrations.Log{Instance: e.BPFFS, Else: e.Stderr}
		events.Each, audit = toJournal(log), slog.New(log.Audit())
	}
	tell := func(kind, text string, data ...any) {
		switch {
		case events.Each != nil: // Each writes all events
		case kind == api.KindWarning:
			e.Warning(text)
		default:
			e.Println("%s", text)
		}
		events.Publish(kind, text, data...)
	}
	report := func(event daemon.Event) {
		if event.Err != nil {
			tell(api.KindWarning, operate.Problems(event.Err)[0].String())
		} else {
			tell(api.KindDone, event.Text)
		}
	}
	attacks := attack.New(h, attack.InState(h.State, e.BPFFS, datapath.DefaultDir), func(event attack.Event) {
		if event.Err != nil {
			tell(api.KindWarning, operate.Problems(event.Err)[0].String())
		} else {
			tell(api.KindAttack, event.Text, event.Data)
			if event.Data.Rule != "" {
				audit.Info("automatic", "rule", event.Data.Rule, "did", event.Data.State, "why", event.Data.Why)
			}
		}
	})
	fleet := daemon.NewFleet(h.Instance, h.State, func(ctx context.Context, tell func(*wire.Summary)) { daemon.Run(ctx, h, attacks, tell) },
		func(ctx context.Context, file *node.File, agent *node.Agent) {
			enactPolicies(ctx, h, file, agent, report)
		}, report)
	side := upstream.Side{RunningPolicy: h.RunningPolicy, Book: upstream.InState(h.State, e.BPFFS, datapath.DefaultDir), Dir: cmp.Or(bgpDir, bgp.Dir(e.BPFFS, datapath.DefaultDir))}
	upstreams := newUpstreamParts(h, side, attacks, report)
	server := api.New(api.Parts{
		Host: h, Events: events, Tell: func(kind, text string) { tell(kind, text) }, Attacks: attacks, Fleet: fleet.View,
		Audit:   audit,
		Figures: []metrics.Part{metrics.Process(cli.Version(), h.Bans.Counts), metrics.Fleet(fleetFigures(fleet)), metrics.Upstream(upstreams.figures), attacks.Metrics()},
	})
	serve := func(ctx context.Context) error { return api.Serve(ctx, run, server, h.DaemonSettings) }
	tapped := func(ctx context.Context) error {
		h.Tap.Run(ctx, func(err error) { report(daemon.Event{Err: err}) })
		return nil
	}
	looking := func(ctx context.Context) error { attacks.Run(ctx); return nil }
	hook := integrations.Sender{RunningPolicy: h.RunningPolicy, Events: events, Report: func(text string, err error) { report(daemon.Event{Text: text, Err: err}) }}
	decided := integrations.Bouncer{Sets: h.Instance, Report: func(text string, err error) { report(daemon.Event{Text: text, Err: err}) }}
	alerts := integrations.AlertFollower{Sets: h.Instance, Report: func(text string, err error) { report(daemon.Event{Text: text, Err: err}) }}
	return daemon.Watch(ctx, h.Instance, run, h.Costs, report, serve, tapped, looking, fleet.Run, decided.Run, alerts.Run, hook.Run, upstreams.tell, upstreams.climb, upstreams.obeyed.Run)
}

// enactPolicies follows the fleet: it applies each policy that the fleet releases, until ctx ends.
func enactPolicies(ctx context.Context, h operate.Host, file *node.File, agent *node.Agent, report func(daemon.Event)) {
	f := daemon.Follower{
		Node: file.Name, Key: file.Policies, Dir: daemon.Dir(file.State, file.Policies), Hub: agent, Host: daemon.OnHost{Host: h},
		Log: func(text string, err error) { report(daemon.Event{Text: text, Err: err}) },
	}
	f.Run(ctx)
}

// fleetFigures returns a function that reads the metrics of a node.
func fleetFigures(f *daemon.Fleet) func() *metrics.FleetFigures {
	return func() *metrics.FleetFigures {
		s := f.Status()
		if s == nil {
			return nil
		}
		figures := &metrics.FleetFigures{
			Connected: s.Connected, Entries: s.Entered, Crowded: s.Crowded, Waiting: s.Waiting,
			In: s.Received, Refused: s.Refused, Out: s.Sent, Unwelcome: s.Rejected,
		}
		if v := f.View(); v != nil {
			figures.View = &metrics.FleetView{Nodes: v.Nodes, Attacked: v.Attacked, Passed: v.Passed.Packets, Dropped: v.Dropped.Packets}
		}
		return figures
	}
}
