package main

import (
	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/internal/lab/experiment"
	"github.com/floodwall/floodwall/internal/model/cost"
)

// calibrate measures what packets cost on this host, and keeps that for the placement of rules.
func (e *env) calibrate(c *cobra.Command, args []string, f *benchFlags) error {
	if len(args) > 0 {
		return usagef(c, "calibrate by itself: `floodwall bench --calibrate`", "flag --calibrate: must be without experiments, got %q", args[0])
	}
	if !privileged() {
		return &privilegeError{commandLine: e.commandLine}
	}
	state, err := e.state()
	if err != nil {
		return err
	}
	f.options.Progress = e.stderr
	found, err := experiment.Calibrate(c.Context(), f.options)
	if err != nil {
		return err
	}
	if err := found.Model.Write(state); err != nil {
		return err
	}
	e.note("the costs are in " + cost.Path(state))
	if e.json {
		return e.printJSON(found)
	}
	if f.markdown {
		return found.Table.WriteMarkdown(e.stdout)
	}
	return found.Table.WriteText(e.stdout)
}
