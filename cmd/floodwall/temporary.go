// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/text/wording"
)

func temporaryCommand(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "temporary",
		Short: "list and change rules that drop before those of the policy, for a limited time",
		Long: "Temporary shows rules that a person or the daemon (`auto` of `detect`) has added for a limited time. They drop packets before the\n" +
			"policy's own rules are asked. The kernel ends each at its time, also without a daemon. The policy file is not changed.",
		Example: "  floodwall temporary --json",
		Args:    cli.None,
		RunE:    func(c *cobra.Command, _ []string) error { return showTemporary(c.Context(), e) },
	}
	e.JSONFlag(c)
	var o operate.TemporaryOrder
	add := &cobra.Command{
		Use:   "add RULE --for TIME",
		Short: "add a rule for a time",
		Long: "Add puts a rule that drops before all rules of the policy, for a time. It spares the sources under `never`, and this host's own\n" +
			"addresses, gateways, resolvers and sessions. Limits, connections, bans and counters of the policy go on.",
		Example: "  floodwall temporary add '{name: ntp, proto: udp, sport: 123, length: 100-65535, then: drop}' --for 10m",
		Args:    cli.Exactly(1, "RULE, in one line as it stands under rules"),
		RunE: func(c *cobra.Command, args []string) error {
			if o.For == "" {
				return cli.Usagef(c, "say how long, as in --for 10m", "flag --for is missing")
			}
			o.Rule = args[0]
			return addTemporary(c.Context(), e, o)
		},
	}
	add.Flags().StringVar(&o.For, "for", "", "the `time` after which it ends, 1s to 24h")
	add.Flags().StringVar(&o.Name, "name", "", "a `name` in place of that in the rule")
	add.Flags().StringVar(&o.Why, "why", "", "`text` that is shown with it")
	e.JSONFlag(add)
	remove := &cobra.Command{
		Use:     "remove NAME...",
		Short:   "remove temporary rules at once",
		Long:    "Remove removes temporary rules, also those of the daemon. The daemon does not add them again during the same attack.",
		Example: "  floodwall temporary remove auto-1",
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return removeTemporary(c.Context(), e, args) },
	}
	c.AddCommand(add, remove)
	return c
}

func showTemporary(ctx context.Context, e *env) error {
	h, err := e.Host()
	if err != nil {
		return err
	}
	list, err := h.Temporary(ctx)
	if err != nil {
		return err
	}
	if e.JSON {
		return e.PrintJSON(list)
	}
	t := wording.NewTable("name", "owner", "does", ">packets", "ends in", "rule")
	for _, r := range list {
		does := r.Verdict
		if r.Observe {
			does = "counts"
		}
		t.Row(r.Name, r.Temporary.Owner, does, wording.Count(r.Packets), wording.Span(max(time.Until(r.Temporary.Until), 0)), r.Temporary.Rule)
	}
	e.Table(t)
	for _, r := range list {
		if r.Temporary.Why != "" {
			e.Println("%s: %s", r.Name, r.Temporary.Why)
		}
	}
	return nil
}

func addTemporary(ctx context.Context, e *env, o operate.TemporaryOrder) error {
	h, err := e.Host()
	if err != nil {
		return err
	}
	t, err := h.AddTemporary(ctx, o)
	if err != nil {
		return err
	}
	if e.JSON {
		return e.PrintJSON(t)
	}
	e.Println("added %s until %s: `floodwall temporary remove %s` removes it at once", t.Name, t.Until.Local().Format(time.DateTime), t.Name)
	return nil
}

func removeTemporary(ctx context.Context, e *env, names []string) error {
	h, err := e.Host()
	if err != nil {
		return err
	}
	if err := h.RemoveTemporary(ctx, names...); err != nil {
		return err
	}
	e.Println("removed %s", wording.Things(len(names), "rule", "rules"))
	return nil
}
