// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/experiment"
	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// benchFleetCommand is the command bench fleet.
func benchFleetCommand(e *env) *cobra.Command {
	var o experiment.FleetOptions
	var strict bool
	c := &cobra.Command{
		Use:   "fleet",
		Short: "measure a fleet: bans to all nodes, a new node, a killed hub, a partition",
		Long: "Fleet runs three hubs and many nodes in one process, in a network namespace of its own, and measures how bans spread.\n" +
			"The nodes are real but for their connections, which are no sockets, and their enforcers, which only count.",
		Example: "  floodwall-lab bench fleet\n  floodwall-lab bench fleet --partition 10m",
		Args:    cli.None,
		RunE:    func(c *cobra.Command, _ []string) error { return e.benchFleet(c, o, strict) },
	}
	flags := c.Flags()
	flags.IntVar(&o.Nodes, "nodes", 1000, "`number` of nodes")
	flags.IntVar(&o.Few, "few", 100, "`number` of nodes of the sustained rate")
	flags.IntVar(&o.Bans, "bans", 100_000, "`number` of bans that a new node gets")
	flags.IntVar(&o.Rate, "rate", 1000, "sustained `bans` a second")
	flags.DurationVar(&o.Sustained, "for", 10*time.Second, "`time` of the sustained rate")
	flags.DurationVar(&o.Partition, "partition", 15*time.Second, "`time` for which a third of the nodes is cut off")
	flags.IntVar(&o.Probes, "probes", 200, "`number` of bans whose way to all nodes is timed")
	flags.BoolVar(&strict, "strict", false, "exit with 1 when a bar is missed")
	e.JSONFlag(c)
	return c
}

// insideFleet is the environment variable that tells a process that it already runs in the new namespace.
const insideFleet = "FLOODWALL_BENCH_FLEET"

func (e *env) benchFleet(c *cobra.Command, o experiment.FleetOptions, strict bool) error {
	if o.Nodes < 3 || o.Few < 3 || o.Bans < 1 || o.Rate < 1 || o.Probes < 1 || o.Sustained <= 0 || o.Partition <= 0 {
		return cli.Usagef(c, cli.HelpHint(c), "the numbers must be positive, and --nodes and --few at least 3")
	}
	if !cli.Privileged() {
		return &cli.PrivilegeError{CommandLine: e.CommandLine}
	}
	if e.Getenv(insideFleet) == "" {
		return e.elsewhere(c, insideFleet, &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGTERM})
	}
	dir, err := os.MkdirTemp("", "floodwall-bench-fleet-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o.Progress = e.Stderr
	rows, err := experiment.RunFleet(c.Context(), dir, o)
	if printed := e.printFleetRows(rows); err == nil {
		err = printed
	}
	for _, r := range rows {
		if err == nil && strict && r.Missed() {
			err = fmt.Errorf("a bar is missed: %s: %.3g %s", r.What, r.Value, r.Unit)
		}
	}
	return err
}

func (e *env) printFleetRows(rows []experiment.FleetRow) error {
	if e.JSON {
		return json.NewEncoder(e.Stdout).Encode(rows)
	}
	t := wording.NewTable("figure", ">value", ">bar", "")
	for _, r := range rows {
		bar, missed := "", ""
		if r.Bar > 0 {
			bar = fmt.Sprintf("%.3g %s", r.Bar, r.Unit)
		}
		if r.Missed() {
			missed = "missed"
		}
		t.Row(r.What, fmt.Sprintf("%.3g %s", r.Value, r.Unit), bar, missed)
	}
	e.Table(t)
	return nil
}
