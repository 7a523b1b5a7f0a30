package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/internal/bench"
)

// benchGuardCommand is bench guard.
func benchGuardCommand(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "guard BOUNDS",
		Short: "check that no kind of packet costs more by another than it may",
		Long: "BOUNDS is a JSON array of ratios: {\"of\": \"rules=20\", \"by\": \"rules=0\", \"most\": 1.5, \"why\": \"...\"}. What is\n" +
			"measured is the time of the thread that receives packets and drops them, which hardly depends on what else the\n" +
			"machine does; a ratio above its bound is measured anew, twice, before it counts. It takes half a minute at most.\n" +
			"The exit status is 1 when a bound is exceeded.\n\nrows: " + strings.Join(bench.GuardRows(), ", "),
		Args: exactly(1, "BOUNDS, a file"),
		RunE: func(c *cobra.Command, args []string) error { return e.benchGuard(c, args[0]) },
	}
	e.jsonFlag(c)
	return c
}

func (e *env) benchGuard(c *cobra.Command, path string) error {
	ratios, err := bench.ReadRatios(path)
	if err != nil {
		return err
	}
	if !privileged() {
		return &privilegeError{commandLine: e.commandLine}
	}
	if ratios, err = bench.Guard(c.Context(), ratios, e.stderr); err != nil {
		return err
	}
	if e.json {
		err = e.printJSON(ratios)
	} else {
		e.printRatios(ratios)
	}
	for i := range ratios {
		if err == nil && ratios[i].Exceeded() {
			return errFailed
		}
	}
	return err
}

func (e *env) printRatios(ratios []bench.Ratio) {
	t := newTable("TIME OF", "BY", ">RATIO", ">MOST", "")
	for i := range ratios {
		r, state := &ratios[i], ""
		if r.Exceeded() {
			state = "EXCEEDED: " + r.Why
		}
		t.row(r.Of, r.By, fmt.Sprintf("%.2f", r.Value), fmt.Sprintf("%.2f", r.Most), state)
	}
	e.table(t)
}
