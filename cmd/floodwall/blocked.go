// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/text/wording"
)

func blockedCommand(e *env) *cobra.Command {
	var f blockedFlags
	c := &cobra.Command{
		Use:   "blocked",
		Short: "list what is blocked, and for how long",
		Long: "Blocked lists the entries of dynamic sets, with the time left, the reason and the origin of each.\n" +
			"The origin is who banned the address: a person (manual), a limit (automatic), a program, or a node of the fleet.",
		Example: "  floodwall blocked --json",
		Args:    cli.None,
		RunE:    func(c *cobra.Command, _ []string) error { return blocked(c.Context(), e, f) },
	}
	c.Flags().StringVar(&f.set, "set", "", "only this `set`")
	c.Flags().StringVar(&f.origin, "origin", "", "only what this `program` asked for, as fail2ban; manual is what persons did")
	c.Flags().StringVar(&f.why, "why", "", "of the entries of --origin only those with this reason, a `text`")
	e.JSONFlag(c)
	return c
}

// blockedFlags are the flags of blocked.
type blockedFlags struct{ set, origin, why string }

func blocked(ctx context.Context, e *env, f blockedFlags) error {
	of, err := operate.OwnerOf(f.origin, f.why)
	if err != nil {
		return fmt.Errorf("--%w", err)
	}
	in, err := e.Host()
	if err != nil {
		return err
	}
	list, err := in.Blocked(ctx, f.set)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(b ban.Ban) bool { return !of.Owns(b) })
	if e.JSON {
		return e.PrintJSON(ban.Shown(list))
	}
	if len(list) == 0 && f == (blockedFlags{}) {
		e.Note("nothing is blocked")
		return nil
	}
	t := wording.NewTable("prefix", "set", "left", "origin", "why")
	for _, b := range list {
		left := "forever"
		if b.Until != ban.Never {
			left = wording.Span(time.Until(b.Until))
		}
		t.Row(addrs.PrefixText(b.Prefix), b.Set, left, originText(b), b.Why)
	}
	e.Table(t)
	return nil
}

// originText returns the origin of a ban, and the node that reported it.
func originText(b ban.Ban) string {
	return strings.TrimSpace(string(b.Origin) + " " + b.Node())
}
