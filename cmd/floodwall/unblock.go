// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/control"
)

func unblockCommand(e *env) *cobra.Command {
	var f unblockFlags
	c := &cobra.Command{
		Use:        "unblock [PREFIX...]",
		SuggestFor: []string{"unban"},
		Short:      "take addresses out of a dynamic set, at once",
		Long: "Unblock removes entries from a dynamic set, exactly as they were blocked. With - it reads them from standard input, one a line.\n" +
			"With --origin it removes entries of that program alone, all of them when no prefix is named. One that has ended is no error.",
		Example: "  floodwall unblock 198.51.100.7\n" +
			"  floodwall unblock --origin crowdsec",
		Args: func(c *cobra.Command, args []string) error {
			if f.origin != "" {
				return nil
			}
			return prefixes(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error { return unblock(c.Context(), e, args, f) },
	}
	c.Flags().StringVar(&f.origin, "origin", "", "the `program` whose entries these are, as fail2ban: those of others stay")
	c.Flags().StringVar(&f.why, "why", "", "of the entries of --origin only those with this reason, a `text`")
	c.Flags().StringVar(&f.set, "set", "", "the dynamic `set`; the only one, or bans, if not said")
	e.JSONFlag(c)
	return c
}

// unblockFlags are the flags of unblock.
type unblockFlags struct{ set, origin, why string }

func unblock(ctx context.Context, e *env, args []string, f unblockFlags) error {
	of, err := operate.OwnerOf(f.origin, f.why)
	if err != nil {
		return fmt.Errorf("--%w", err)
	}
	in, err := e.Host()
	if err != nil {
		return err
	}
	change := &change{env: e, verb: "unblocked", preposition: "from"}
	change.do = func(ctx context.Context, list []piece) (control.Fill, error) {
		prefixes := make([]netip.Prefix, len(list))
		for i, p := range list {
			prefixes[i] = p.prefix
		}
		return operate.Ended(of)(in.UnblockOf(ctx, f.set, of, prefixes))
	}
	if len(args) == 0 {
		owned, err := in.Owned(ctx, f.set, of)
		if err != nil {
			return err
		}
		change.add(1, owned, operate.Terms{})
	}
	defer in.Bans.Sync() // flush has already reported the error that Sync would return
	defer e.warnLeft(ctx, in)
	return change.run(ctx, args)
}
