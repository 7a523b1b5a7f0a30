package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/internal/control"
)

func statusCommand(e *env) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "status",
		Short: "what runs, and what it has decided so far",
		Long: "Status shows the policy that runs and what each rule, check and set has counted.\n" +
			"The exit status is 1 when nothing runs, or when a part of the policy is missing in the kernel.",
		Example: "  floodwall status --json",
		Args:    none,
		RunE:    func(c *cobra.Command, _ []string) error { return status(c.Context(), e, all) },
	}
	c.Flags().BoolVar(&all, "all", false, "list checks and built-in rules that have seen no packet, too")
	e.jsonFlag(c)
	return c
}

func status(ctx context.Context, e *env, all bool) error {
	in, err := e.host()
	if err != nil {
		return err
	}
	s, err := in.Status(ctx)
	if err != nil {
		return err
	}
	if e.json {
		return firstError(e.printJSON(s), wholeOr(s))
	}
	for _, w := range append(slices.Clone(s.Open), s.Warnings...) {
		e.warning(w)
	}
	if len(s.Open) > 0 {
		e.stderrLine("hint", "`floodwall repair` puts back what has gone, and `floodwall daemon` does so by itself")
	}
	e.println("%s, generation %d, applied %s, %s ago", s.Policy, s.Generation,
		s.Applied.Format("2006-01-02 15:04:05 UTC"), span(time.Since(s.Applied)))
	target := "target " + string(s.Target)
	if s.Choice != "" {
		target += ": " + s.Choice
	}
	e.println("%s", target)
	if d, err := in.DaemonSettings(ctx); err == nil && d.Page() != "" { // an error means that another policy runs by now
		e.println("page %s", d.Page())
	}
	if t := s.Trial; t != nil {
		back := fmt.Sprintf("generation %d returns", t.Returns)
		if t.Returns == 0 {
			back = "nothing is filtered any more"
		}
		e.println("on trial: %s in %.0f s unless `floodwall confirm` comes before", back, t.Left)
	}
	if r := s.Repairs; r.Count > 0 {
		e.println("repaired %s, last %s ago: %s", things(r.Count, "time", "times"), span(time.Since(r.Last)), r.What)
	}
	for _, t := range []*table{deviceTable(s), ruleTable(s, all), checkTable(s, all), setTable(s), limitTable(s), protectionTable(s)} {
		if len(t.rows) > 0 {
			e.println("")
			e.table(t)
		}
	}
	if v := s.Verified; v != nil {
		e.println("")
		e.println("%s verified by answers over TCP, capacity %s", things(v.Clients, "client", "clients"), count(v.Capacity))
	}
	e.printPlacement(s.Placement)
	e.printFleet()
	return wholeOr(s)
}

// wholeOr is the exit status: it fails when something is open.
func wholeOr(s *control.Status) error {
	if len(s.Open) > 0 {
		return errFailed
	}
	return nil
}

func deviceTable(s *control.Status) *table {
	t := newTable("device", "stage", "mode")
	for _, d := range s.Devices {
		t.row(d.Name, string(d.Stage), cmp.Or(d.Mode, "-"))
	}
	return t
}

func ruleTable(s *control.Status, all bool) *table {
	t := newTable("rule", "stage", "verdict", ">packets", ">bytes")
	for _, r := range s.Rules {
		if all || r.Line > 0 || r.Packets > 0 {
			ruleRow(t, r)
		}
	}
	ruleRow(t, s.Default)
	if all || s.NotIP.Packets > 0 {
		ruleRow(t, s.NotIP)
	}
	if s.Replies != nil {
		ruleRow(t, *s.Replies)
	}
	return t
}

func checkTable(s *control.Status, all bool) *table {
	t := newTable("check", "stage", "verdict", ">packets", ">bytes")
	for _, c := range s.Checks {
		if all || c.Packets > 0 {
			ruleRow(t, c)
		}
	}
	return t
}

func limitTable(s *control.Status) *table {
	t := newTable("limit of", ">prefixes", ">capacity", ">full", ">forgotten", "limit")
	for _, l := range s.Limits {
		prefixes, capacity, full := "-", "-", "-" // of one limit for all
		if l.Capacity > 0 {
			prefixes, capacity, full = count(l.Debts), count(l.Capacity), fmt.Sprintf("%d%%", l.Debts*100/l.Capacity)
		}
		t.row(l.Rule, prefixes, capacity, full, count(l.Evictions), l.Limit)
	}
	return t
}

func protectionTable(s *control.Status) *table {
	t := newTable("protection of", "mode", "by", "cookies", ">connections", ">capacity", ">mss", ">wscale", "options")
	for _, p := range s.Protections {
		connections, capacity := "-", "-"
		if p.Flows.Capacity > 0 {
			connections, capacity = count(p.Flows.Entries), count(p.Flows.Capacity)
		}
		mss := fmt.Sprint(p.MSS[0])
		if p.MSS[1] != p.MSS[0] {
			mss += fmt.Sprintf(", %d", p.MSS[1])
		}
		scale := "-"
		if p.WScale >= 0 {
			scale = strconv.Itoa(p.WScale)
		}
		t.row(p.Service, p.Mode, p.Method, cookies(p), connections, capacity, mss, scale, cmp.Or(strings.Join(p.Options, " "), "-"))
	}
	return t
}

// cookies says whether SYNs are answered with cookies.
func cookies(p control.ProtectionStatus) string {
	switch {
	case p.Refused > 0:
		return fmt.Sprintf("refused for %.0f s", p.Refused)
	case p.Active && p.Always:
		return "always"
	case p.Active:
		return fmt.Sprintf("for %.0f s", p.Left)
	}
	return "no"
}

func ruleRow(t *table, r control.RuleStatus) {
	name := r.Name
	if r.Merged > 1 {
		name += fmt.Sprintf(" (and %s)", things(r.Merged-1, "more", "more"))
	}
	verdict := r.Verdict
	if r.Observe {
		verdict = "(" + verdict + ")"
	}
	packets, bytes := count(r.Packets), amount(r.Bytes)
	if r.Uncounted {
		packets, bytes = "-", "-"
	}
	t.row(name, string(r.Stage), verdict, packets, bytes)
}

func setTable(s *control.Status) *table {
	t := newTable("set", "kind", ">entries", ">capacity", ">full")
	for _, set := range s.Sets {
		full := "-"
		if set.Capacity > 0 {
			full = strconv.Itoa(set.Entries*100/set.Capacity) + "%"
		}
		t.row(set.Name, set.Kind, count(set.Entries), count(set.Capacity), full)
	}
	return t
}
