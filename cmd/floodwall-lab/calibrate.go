// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/experiment"
	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/model/cost"
)

// calibrate measures the cost of packets on this host and saves the costs. The placement of rules uses them.
func (e *env) calibrate(c *cobra.Command, args []string, f *benchFlags) error {
	if len(args) > 0 {
		return cli.Usagef(c, "calibrate by itself: `floodwall-lab bench --calibrate`", "flag --calibrate: must be without experiments, got %q", args[0])
	}
	if !cli.Privileged() {
		return &cli.PrivilegeError{CommandLine: e.CommandLine}
	}
	state, err := e.State()
	if err != nil {
		return err
	}
	f.options.Progress = e.Stderr
	found, err := experiment.Calibrate(c.Context(), f.options)
	if err != nil {
		return err
	}
	if err := found.Model.Write(state); err != nil {
		return err
	}
	e.Note("the costs are in " + cost.Path(state))
	if e.JSON {
		return e.PrintJSON(found)
	}
	if f.markdown {
		return found.Table.WriteMarkdown(e.Stdout)
	}
	return found.Table.WriteText(e.Stdout)
}
