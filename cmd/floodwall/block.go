// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/host/facts"
)

// blockFlags are the flags of block.
type blockFlags struct {
	set, why, duration, origin string
	force                      bool
}

func blockCommand(e *env) *cobra.Command {
	var f blockFlags
	c := &cobra.Command{
		Use:        "block PREFIX...",
		SuggestFor: []string{"ban"},
		Short:      "put addresses into a dynamic set, at once",
		Long: "Block adds addresses, prefixes and ranges to a dynamic set of the policy that runs, at once.\n" +
			"With - it reads them from standard input, one a line: PREFIX [for=TIME] [why=TEXT].",
		Example: "  floodwall block 198.51.100.7 203.0.113.0/24 --for 1h --why 'ssh guessing'\n" +
			"  detector | floodwall block -",
		Args: prefixes,
		RunE: func(c *cobra.Command, args []string) error { return block(c.Context(), e, args, f) },
	}
	c.Flags().StringVar(&f.duration, "for", "", "`time` as 90s, 15m, 1h, 7d or forever (default the timeout of the set)")
	c.Flags().StringVar(&f.set, "set", "", "dynamic `set` (default the only one, or bans)")
	c.Flags().StringVar(&f.why, "why", "", "reason, a `text` of up to 64 bytes, which the command blocked shows")
	c.Flags().StringVar(&f.origin, "origin", "", "`program` that asks, as fail2ban: it cannot change bans made by hand, or ban an address that the policy or this host needs")
	c.Flags().BoolVar(&f.force, "force", false, "block even the address of this SSH session, and what this host cannot do without: its addresses, gateways, resolvers, hubs")
	e.JSONFlag(c)
	return c
}

// prefixes returns a usage error unless there is at least one prefix.
func prefixes(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cli.Usagef(c, "name addresses, prefixes or ranges, or - to read them from standard input", "missing argument: want PREFIX")
	}
	return nil
}

func block(ctx context.Context, e *env, args []string, f blockFlags) error {
	asked := ban.Ban{Why: f.why}
	duration, err := operate.BanTime(f.duration)
	if err != nil {
		return fmt.Errorf("--%w", err)
	}
	if asked.Origin, err = operate.AskerOf(f.origin); err != nil {
		return fmt.Errorf("--%w", err)
	}
	if len(f.why) > maxWhy {
		e.Warning(fmt.Sprintf("--why is longer than %d bytes: the rest is cut", maxWhy))
	}
	in, err := e.Host()
	if err != nil {
		return err
	}
	change := &change{env: e, verb: "blocked", preposition: "in", terms: operate.TermsOf}
	spares := func() (func(netip.Prefix) error, error) {
		origin := asked.Origin
		if f.force {
			origin = ban.Manual
		}
		may, err := in.May(ctx, origin, facts.Sessions(), "", "use --force if that is meant")
		if f.force {
			may = e.warned(may)
		}
		return may, err
	}
	if change.spares, err = operate.Renewed(spares, allowlistAge); err != nil {
		return err
	}
	change.do = func(ctx context.Context, list []piece) (control.Fill, error) {
		bans := make([]ban.Ban, len(list))
		for i, p := range list {
			bans[i] = asked
			bans[i].Until = ban.After(cmp.Or(p.terms.For, duration))
			bans[i].Why = cmp.Or(p.terms.Why, asked.Why)
			if bans[i].Prefix = p.prefix; p.part {
				bans[i].Range = p.line
			}
		}
		return in.Block(ctx, f.set, bans)
	}
	defer in.Bans.Sync() // flush has already reported the error that Sync would return
	defer e.warnLeft(ctx, in)
	return change.run(ctx, args)
}

// warned returns a function that prints a warning for each prefix that refuse rejects, and accepts the prefix. It implements --force.
func (e *env) warned(refuse func(netip.Prefix) error) func(netip.Prefix) error {
	return func(p netip.Prefix) error {
		if err := refuse(p); err != nil {
			e.Warning(strings.TrimSuffix(err.Error(), ": not blocked") + ": it is blocked by --force; `floodwall unblock` ends that")
		}
		return nil
	}
}

// allowlistAge is the time after which the allowlist is read again. A stream may run for days, and an operator may log in meanwhile.
const allowlistAge = time.Second

// maxWhy is the maximum length in bytes of a reason that a dynamic set stores.
const maxWhy = 64
