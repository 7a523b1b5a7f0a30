// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/text/wording"
)

func statusCommand(e *env) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "status",
		Short: "what runs, and what it has decided so far",
		Long: "Status shows the policy that runs and what each rule, check and set has counted.\n" +
			"The exit status is 1 when nothing runs, a part of the policy is missing, or rules of another policy are left.",
		Example: "  floodwall status --json",
		Args:    cli.None,
		RunE:    func(c *cobra.Command, _ []string) error { return status(c.Context(), e, all) },
	}
	c.Flags().BoolVar(&all, "all", false, "list checks and built-in rules that have seen no packet, too")
	e.JSONFlag(c)
	return c
}

func status(ctx context.Context, e *env, all bool) error {
	in, err := e.Host()
	if err != nil {
		return err
	}
	s, err := in.Status(ctx)
	if err != nil {
		return err
	}
	if e.JSON {
		return firstError(e.PrintJSON(s), wholeOr(s))
	}
	for _, w := range slices.Concat(s.Open, s.Leftovers, s.Warnings) {
		e.Warning(w)
	}
	if len(s.Open) > 0 {
		e.StderrLine("hint", "`floodwall repair` puts back what has gone, and `floodwall daemon` does so by itself")
	}
	e.Println("%s, generation %d, applied %s, %s ago", s.Policy, s.Generation,
		s.Applied.Format("2006-01-02 15:04:05 UTC"), wording.Span(time.Since(s.Applied)))
	target := "target " + string(s.Target)
	if s.Choice != "" {
		target += ": " + s.Choice
	}
	e.Println("%s", target)
	if d, err := in.DaemonSettings(ctx); err == nil && d.Page() != "" { // after an error, another policy runs by now
		e.Println("page %s", d.Page())
	}
	if t := s.Trial; t != nil {
		back := fmt.Sprintf("generation %d returns", t.Returns)
		if t.Returns == 0 {
			back = "nothing is filtered any more"
		}
		e.Println("on trial: %s in %.0f s unless `floodwall confirm` comes before", back, t.Left)
	}
	if r := s.Repairs; r.Count > 0 {
		e.Println("repaired %s, last %s ago: %s", wording.Things(r.Count, "time", "times"), wording.Span(time.Since(r.Last)), r.What)
	}
	e.sayAttacks()
	for _, line := range portLines(s.Ports) {
		e.Println("%s", line)
	}
	for _, t := range StatusTables(s, all) {
		if t.Len() > 0 {
			e.Println("")
			e.Table(t)
		}
	}
	if v := s.Verified; v != nil {
		e.Println("")
		e.Println("%s verified by answers over TCP, capacity %s", wording.Things(v.Clients, "client", "clients"), wording.Count(v.Capacity))
	}
	if n := s.Names; n != nil {
		e.Println("")
		e.Println("%s answered, capacity %s", wording.Things(n.Answered, "name", "names"), wording.Count(n.Capacity))
	}
	if u := s.UDP; u != nil {
		e.Println("")
		e.Println("%s", clientsLine(u))
	}
	if r := s.ReplyFlows; r != nil {
		e.Println("")
		e.Println("%s", flowsLine(r))
	}
	e.printPlacement(s.Placement)
	e.printFleet(in.State)
	return wholeOr(s)
}

// warnLeft warns of active netfilter rules that belong to no policy in force.
func (e *env) warnLeft(ctx context.Context, in operate.Host) {
	for _, text := range in.Leftovers(ctx) {
		e.Warning(text)
	}
}

// flowsLine says how full the table of flows for replies is.
func flowsLine(r *control.ReplyFlowStatus) string {
	return fmt.Sprintf("%s, capacity %s, %s displaced, %s refused",
		wording.Things(r.Flows, "flow from inside", "flows from inside"), wording.Count(r.Capacity), wording.Count(r.Displaced), wording.Count(r.Refused))
}

// wholeOr returns ErrFailed when a device is not filtered, or when rules that are not part of the policy decide about packets.
func wholeOr(s *control.Status) error {
	if len(s.Open)+len(s.Leftovers) > 0 {
		return cli.ErrFailed
	}
	return nil
}
