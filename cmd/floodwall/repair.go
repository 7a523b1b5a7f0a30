// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

func repairCommand(e *env) *cobra.Command {
	var restoring bool
	c := &cobra.Command{
		Use:   "repair",
		Short: "put back parts of the running policy that other tools removed",
		Long: "Repair puts back what other tools have removed: XDP programs, and rules and sets in netfilter.\n" +
			"It changes nothing that is whole. `floodwall daemon` does the same at once.",
		Example: "  floodwall repair",
		Args:    cli.None,
		RunE:    func(c *cobra.Command, _ []string) error { return repair(c.Context(), e, restoring) },
	}
	e.JSONFlag(c)
	c.Flags().BoolVar(&restoring, "boot-restore", false, "apply the policy that was saved for boot when nothing is loaded")
	c.Flags().MarkHidden("boot-restore") // for the systemd unit that runs when devices return
	return c
}

// repair repairs the loaded policy. If no policy is loaded and restoring is set, repair applies the policy that was saved for boot. That is needed
// when the first device of the policy appears after systemd stopped waiting for it.
func repair(ctx context.Context, e *env, restoring bool) error {
	in, err := e.Host()
	if err != nil {
		return err
	}
	r, err := in.Repair(ctx)
	if restoring && errors.Is(err, datapath.ErrNotLoaded) {
		return restore(ctx, e)
	}
	if r == nil {
		return err
	}
	err = errors.Join(err, in.OpenFiltered(ctx))
	if e.JSON {
		return firstError(err, e.PrintJSON(r))
	}
	for _, name := range r.Waiting {
		e.Warning("device " + name + " has gone: repair again when it has returned")
	}
	for _, name := range r.Renamed {
		e.Warning(control.RenamedText(name))
	}
	for _, text := range r.Missed {
		e.Warning(text)
	}
	left := len(r.Waiting)+len(r.Renamed)+len(r.Missed) > 0
	if text := r.String(); text != "" {
		e.Println("repaired: %s", text)
	} else if err == nil && !left {
		e.Println("nothing to repair")
	}
	if err == nil && left {
		return cli.ErrFailed
	}
	return err
}
