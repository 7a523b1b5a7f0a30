package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/internal/daemon"
)

func daemonCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "daemon",
		Short: "ban offenders, move rules to where they cost least; keep up with the host's addresses, keys of SYN cookies, and trials that ended",
		Long: "Daemon bans offenders, repairs what other tools remove, moves rules to where they cost least, and renews the keys of SYN cookies.\n" +
			"Filtering never depends on it.",
		Example: "  floodwall daemon",
		Args:    none,
		RunE:    func(c *cobra.Command, _ []string) error { return runDaemon(c.Context(), e) },
	}
}

func runDaemon(ctx context.Context, e *env) error {
	in, err := e.instance()
	if err != nil {
		return err
	}
	return daemon.Watch(ctx, in, e.freshCosts(), func(event daemon.Event) {
		if event.Err != nil {
			e.warning(message(event.Err))
			return
		}
		e.println("%s", event.Text)
	})
}
