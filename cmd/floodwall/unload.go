// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

func unloadCommand(e *env) *cobra.Command {
	var keepBoot bool
	c := &cobra.Command{
		Use:   "unload",
		Short: "detach from all devices and remove everything",
		Long: "Unload removes everything: programs, rules in netfilter, state, and the systemd units of `apply --boot`.\n" +
			"It is the only command that ends filtering.",
		Example: "  floodwall unload",
		Args:    cli.None,
		RunE:    func(c *cobra.Command, _ []string) error { return unload(c.Context(), e, keepBoot) },
	}
	c.Flags().BoolVar(&keepBoot, "keep-boot", false, "leave what comes back after a reboot")
	c.Flags().MarkHidden("keep-boot")
	return c
}

func unload(ctx context.Context, e *env, keepBoot bool) error {
	in, err := e.Host()
	if err != nil {
		return err
	}
	err = in.Unload(ctx)
	if !keepBoot && (err == nil || errors.Is(err, datapath.ErrNotLoaded)) {
		err = errors.Join(err, in.Forget(context.WithoutCancel(ctx)), in.Bans.Remove())
	}
	if err == nil {
		e.Println("unloaded: nothing is filtered any more")
	}
	e.sayRetained(ctx, in)
	return err
}

// sayRetained names the table that stays in netfilter for connections that started through SYNPROXY.
func (e *env) sayRetained(ctx context.Context, in operate.Host) {
	if table, err := in.Retained(ctx); err != nil {
		e.Warning(fmt.Sprintf("whether a table is left for connections that SYNPROXY began is not known: %v", err))
	} else if table != "" {
		e.Println("%s", retained(table))
	}
}

// retained returns the message about the table that remains for connections that started through SYNPROXY. It says how to remove the table.
func retained(table string) string {
	return fmt.Sprintf("left: table inet %[1]s, which filters nothing: without it connections that SYNPROXY began would break. The next unload or "+
		"apply removes it when they have ended, as `floodwall daemon` does; `nft delete table inet %[1]s` does at once", table)
}
