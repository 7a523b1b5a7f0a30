package main

import (
	"context"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/internal/control"
)

func unblockCommand(e *env) *cobra.Command {
	var set string
	c := &cobra.Command{
		Use:   "unblock PREFIX...",
		Short: "take addresses out of a dynamic set, at once",
		Long: "Unblock removes entries from a dynamic set, exactly as they were blocked.\n" +
			"With - it reads them from standard input, one a line.",
		Example: "  floodwall unblock 198.51.100.7",
		Args:    prefixes,
		RunE:    func(c *cobra.Command, args []string) error { return unblock(c.Context(), e, args, set) },
	}
	c.Flags().StringVar(&set, "set", "", "the dynamic `set`; the only one, or bans, if not said")
	e.jsonFlag(c)
	return c
}

func unblock(ctx context.Context, e *env, args []string, set string) error {
	in, err := e.host()
	if err != nil {
		return err
	}
	change := &change{env: e, verb: "unblocked", preposition: "from"}
	change.do = func(ctx context.Context, list []piece) (control.Fill, error) {
		prefixes := make([]netip.Prefix, len(list))
		for i, p := range list {
			prefixes[i] = p.prefix
		}
		return in.Unblock(ctx, set, prefixes)
	}
	defer in.Bans.Sync() // what it would say, flush has said
	return change.run(ctx, args)
}
