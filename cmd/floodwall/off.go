// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/host/boot"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/text/wording"
)

func offCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:        "off",
		SuggestFor: []string{"stop", "disable"},
		Short:      "filter nothing any more, and keep the policy's file for `on`",
		Long: "Off removes everything of Floodwall from the kernel, and disables the systemd units. The policy's file and the bans stay.\n" +
			"`floodwall on` brings the same back.",
		Example: "  floodwall off",
		Args:    cli.None,
		RunE:    func(c *cobra.Command, _ []string) error { return turnOff(c.Context(), e) },
	}
}

// turnOff unloads, and disables the units. It also does the second when nothing is loaded, as after an earlier call that failed.
func turnOff(ctx context.Context, e *env) error {
	h, err := e.Host()
	if err != nil {
		return err
	}
	file := operate.UsualPolicy
	if s, err := h.Instance.Status(ctx); err == nil {
		file = s.Policy
	}
	unloaded := h.Unload(ctx)
	if unloaded != nil && !errors.Is(unloaded, datapath.ErrNotLoaded) {
		return unloaded
	}
	ctx = context.WithoutCancel(ctx)
	if unloaded != nil {
		e.Println("nothing was loaded")
	} else {
		e.Println("unloaded: nothing is filtered any more")
	}
	saved := boot.Open(h.State).Enabled()
	if err := h.Forget(ctx); err != nil {
		return wording.WithHint(fmt.Errorf("the units of systemd remain: %w", err), "`floodwall off` tries again")
	}
	if saved {
		e.Println("disabled: systemd loads nothing at the next boot, and runs no daemon")
	}
	if h.HasDaemon() {
		e.Println("a daemon that is not of systemd runs on, and waits for a policy")
	}
	if _, err := os.Stat(file); err == nil {
		e.Println("%s stays: `%s` brings it back", file, onWith(file))
	}
	e.sayRetained(ctx, h)
	return nil
}

// onWith is the command that uses a policy.
func onWith(file string) string {
	if file == operate.UsualPolicy {
		return "floodwall on"
	}
	return "floodwall on --policy " + file
}
