// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/internal/cli"
)

// benchCompareCommand is the command bench compare.
func benchCompareCommand(e *env) *cobra.Command {
	var o report.CompareOptions
	var all bool
	c := &cobra.Command{
		Use:   "compare OLD NEW",
		Short: "say what changed between two runs beyond noise",
		Long: "Compare says which rows of two results of bench changed by more than noise. OLD and NEW are directories or report.json.\n" +
			"The exit status is 1 when Floodwall became significantly slower.",
		Example: "  floodwall-lab bench program --out old\n  floodwall-lab-new bench program --out new\n  floodwall-lab bench compare old new",
		Args:    cli.Exactly(2, "OLD and NEW, two results of bench"),
		RunE:    func(c *cobra.Command, args []string) error { return e.benchCompare(c, args, o, all) },
	}
	flags := c.Flags()
	flags.BoolVar(&all, "all", false, "print all rows, not those alone that changed")
	flags.Float64Var(&o.Alpha, "alpha", 0.05, "`share` of false alarms among what is said to have changed")
	flags.Float64Var(&o.Delta, "delta", 0.05, "least change of Floodwall's mean in an experiment that counts, as a `share`; of one row, four times that")
	e.JSONFlag(c)
	return c
}

func (e *env) benchCompare(c *cobra.Command, args []string, o report.CompareOptions, all bool) error {
	if o.Alpha <= 0 || o.Alpha >= 1 {
		return cli.Usagef(c, "0.05 is usual", "flag --alpha: must be between 0 and 1, got %v", o.Alpha)
	}
	if o.Delta <= 0 || o.Delta >= 1 {
		return cli.Usagef(c, "0.05 is usual", "flag --delta: must be between 0 and 1, got %v", o.Delta)
	}
	old, errOld := report.Read(args[0])
	new, errNew := report.Read(args[1])
	if err := errors.Join(errOld, errNew); err != nil {
		return err
	}
	found := report.Compare(old, new, o)
	if len(found.Rows) == 0 {
		return fmt.Errorf("%s and %s have no row in common: compare runs of the same experiments", args[0], args[1])
	}
	var err error
	if e.JSON {
		err = e.PrintJSON(found)
	} else {
		err = found.WriteText(e.Stdout, all)
	}
	if err == nil && len(found.Worse()) > 0 {
		return cli.ErrFailed
	}
	return err
}
