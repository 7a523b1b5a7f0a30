// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/host/boot"
)

func unitFilesCommand(e *env) *cobra.Command {
	binary, packaged, group := "/usr/local/bin/floodwall", false, ""
	c := &cobra.Command{
		Use:    "units DIR",
		Short:  "write the systemd units of an instance with the default directories to a directory",
		Hidden: true,
		Args:   cli.Exactly(1, "DIR, a directory"),
		RunE: func(_ *cobra.Command, args []string) error {
			return boot.Units{Binary: binary, State: cmp.Or(e.StateDir, cli.DefaultState), BPFFS: e.BPFFS, Daemon: true, Packaged: packaged, Group: group}.Write(args[0])
		},
	}
	c.Flags().StringVar(&binary, "binary", binary, "where the units find the binary")
	c.Flags().BoolVar(&packaged, "packaged", false, "the units are those of a package")
	c.Flags().StringVar(&group, "group", group, "the `group` that may read from the daemon")
	return c
}
