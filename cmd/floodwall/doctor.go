// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/doctor"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/os/periodic"
)

func doctorCommand(e *env) *cobra.Command {
	var all bool
	var devices []string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "find what costs packets on this host, with a remedy for each finding",
		Long: "Doctor shows what costs packets on this host, and the remedy for each finding. It changes nothing.\n" +
			"The exit status is 1 when a finding is a warning or a problem.",
		Example: "  floodwall doctor --all",
		Args:    cli.None,
		RunE: func(c *cobra.Command, _ []string) error {
			o := doctor.Options{Instance: control.Instance{Dir: e.BPFFS}, Devices: devices}
			return examine(c.Context(), e, o, all)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "also list what is in order")
	c.Flags().StringArrayVar(&devices, "device", nil, "look only at this `device`; repeat it for more")
	complete(c, "device", deviceNames()...)
	e.JSONFlag(c)
	return c
}

func examine(ctx context.Context, e *env, o doctor.Options, all bool) error {
	found, err := periodic.Within(ctx, func() ([]doctor.Finding, error) { return doctor.Examine(ctx, o) })
	if err != nil {
		return err
	}
	if e.JSON {
		err = e.PrintJSON(doctor.Shown(found, all))
	} else {
		e.Text(doctor.Text(found, all))
	}
	if err == nil && doctor.Bad(found) {
		return cli.ErrFailed
	}
	return err
}
