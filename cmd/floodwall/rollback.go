package main

import (
	"context"

	"github.com/spf13/cobra"
)

func rollbackCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "rollback",
		Short: "return to the policy before, whether or not this one is confirmed",
		Long: "Rollback makes the policy that ran before the last apply run again, with the bans of now; in XDP with its counters,\n" +
			"too. A second rollback returns to the one that it took back. A policy on trial is given up; the kernel would do\n" +
			"so by itself when its time is over. It does not change the target.",
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error { return rollback(c.Context(), e) },
	}
}

func rollback(ctx context.Context, e *env) error {
	in, err := e.instance()
	if err != nil {
		return err
	}
	now, err := in.Rollback(ctx)
	if err != nil {
		return err
	}
	if now.Generation == 0 {
		e.println("rolled back: there was no policy before, and nothing is filtered any more")
		return e.remember(ctx, now)
	}
	e.println("rolled back: generation %d of %s runs again", now.Generation, now.Policy)
	return e.remember(ctx, now)
}
