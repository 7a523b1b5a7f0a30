package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/internal/addrs"
	"github.com/floodwall/floodwall/internal/control"
)

func blockedCommand(e *env) *cobra.Command {
	var set string
	c := &cobra.Command{
		Use:   "blocked",
		Short: "list what is blocked, and for how long",
		Long: "Blocked lists the entries of dynamic sets, with the time left, the reason and the origin of each.\n" +
			"The origin is the operator or the rule that banned the address.",
		Example: "  floodwall blocked --json",
		Args:    none,
		RunE:    func(c *cobra.Command, _ []string) error { return blocked(c.Context(), e, set) },
	}
	c.Flags().StringVar(&set, "set", "", "only this `set`")
	e.jsonFlag(c)
	return c
}

func blocked(ctx context.Context, e *env, set string) error {
	in, err := e.host()
	if err != nil {
		return err
	}
	list, err := in.Blocked(ctx, set)
	if err != nil {
		return err
	}
	if e.json {
		return e.printJSON(append([]control.Blocked{}, list...))
	}
	t := newTable("prefix", "set", "left", "origin", "why")
	for _, b := range list {
		left := "forever"
		if b.Expires != nil {
			left = span(time.Duration(*b.Expires * float64(time.Second)))
		}
		t.row(addrs.PrefixText(b.Prefix), b.Set, left, string(b.Origin), b.Why)
	}
	e.table(t)
	return nil
}
