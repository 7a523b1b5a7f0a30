package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/internal/control"
)

func daemonCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "daemon",
		Short: "ban offenders; keep up with the host's addresses, keys of SYN cookies, and trials that ended",
		Long: "Daemon bans who exceeds limits with `ban`, enters the host's own addresses into the set `local` of the XDP program as\n" +
			"they come and go, gives SYN cookies a new key every hour, and cleans up after a trial that nobody confirmed. Filtering\n" +
			"never depends on it: without it `local` is as of the last apply, as the key is, limits hold, and bans end when their\n" +
			"time has come, but nobody is banned anew.",
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error { return daemon(c.Context(), e) },
	}
}

func daemon(ctx context.Context, e *env) error {
	in, err := e.instance()
	if err != nil {
		return err
	}
	return in.Watch(ctx, func(event control.Event) {
		if event.Err != nil {
			e.warning(message(event.Err))
			return
		}
		e.println("%s", event.Text)
	})
}
