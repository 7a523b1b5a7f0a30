// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/daemon/operate"
)

func confirmCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "confirm",
		Short: "keep the policy that `apply --confirm` put on trial",
		Long: "Confirm keeps the policy that `apply --confirm` put on trial.\n" +
			"If nobody confirms in time, the kernel returns to the previous policy.",
		Example: "  floodwall confirm",
		Args:    cli.None,
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := e.Host()
			if err != nil {
				return err
			}
			return confirm(c.Context(), e, h)
		},
	}
}

func confirm(ctx context.Context, e *env, h operate.Host) error {
	defer e.warnLeft(ctx, h)
	kept, err := h.Confirm(ctx)
	var saved *operate.SavedError
	if err != nil && !errors.As(err, &saved) {
		return err
	}
	e.Println("confirmed: generation %d of %s stays", kept.Generation, kept.Policy)
	return err
}
