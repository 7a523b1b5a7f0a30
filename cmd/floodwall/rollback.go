// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/daemon/operate"
)

func rollbackCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "rollback",
		Short: "return to the previous policy, also from a trial",
		Long: "Rollback returns to the policy that ran before the last apply. The present bans stay.\n" +
			"A second rollback undoes the first.",
		Example: "  floodwall rollback",
		Args:    cli.None,
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := e.Host()
			if err != nil {
				return err
			}
			return rollback(c.Context(), e, h)
		},
	}
}

func rollback(ctx context.Context, e *env, h operate.Host) error {
	defer e.warnLeft(ctx, h)
	now, err := h.Rollback(ctx)
	var saved *operate.SavedError
	if err != nil && !errors.As(err, &saved) {
		return err
	}
	if now.Generation == 0 {
		e.Println("rolled back: there was no previous policy, and nothing is filtered any more")
		return err
	}
	e.Println("rolled back: generation %d of %s runs again", now.Generation, now.Policy)
	return err
}
