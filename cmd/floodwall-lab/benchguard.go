// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/guard"
	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// benchGuardCommand is the command bench guard.
func benchGuardCommand(e *env) *cobra.Command {
	var lines string
	c := &cobra.Command{
		Use:   "guard BOUNDS",
		Short: "check that no kind of packet executes more instructions than it may",
		Long: "Guard counts the instructions that the loaded program executes for each kind of packet, and compares them with BOUNDS.\n" +
			"Kinds: " + strings.Join(guard.Kinds(), ", "),
		Example: "  floodwall-lab bench guard .ci/instructions.json\n  floodwall-lab bench guard .ci/instructions.json --lines syn",
		Args:    cli.Exactly(1, "BOUNDS, a file"),
		RunE:    func(c *cobra.Command, args []string) error { return e.benchGuard(c, args[0], lines) },
	}
	c.Flags().StringVar(&lines, "lines", "", "`kind` of packet: show the instructions of each function and line of the source, for it alone")
	e.JSONFlag(c)
	return c
}

func (e *env) benchGuard(c *cobra.Command, path, lines string) error {
	bounds, err := guard.Read(path)
	if err != nil {
		return err
	}
	if lines != "" {
		bounds = slices.DeleteFunc(bounds, func(b guard.Bound) bool { return b.Kind != lines })
		if len(bounds) == 0 {
			return cli.Usagef(c, "the kinds are in "+path, "flag --lines: no bound is of kind %q", lines)
		}
	}
	if !cli.Privileged() {
		return &cli.PrivilegeError{CommandLine: e.CommandLine}
	}
	findings, err := guard.Measure(c.Context(), bounds, e.Stderr)
	if err != nil {
		return err
	}
	switch {
	case e.JSON && lines != "":
		err = e.PrintJSON(findings[0].Lines)
	case e.JSON:
		err = e.PrintJSON(findings)
	case lines != "":
		e.printLines(findings[0].Lines)
	default:
		e.printFindings(findings)
	}
	for i := range findings {
		if err == nil && findings[i].Exceeded() {
			return cli.ErrFailed
		}
	}
	return err
}

func (e *env) printFindings(findings []guard.Finding) {
	t := wording.NewTable("PACKET", ">INSTRUCTIONS", ">MOST", ">LOADS", ">STACK STORES", ">SHARED WRITES", ">ATOMICS", ">HELPERS", "")
	for i := range findings {
		f := &findings[i]
		row := []string{f.Kind}
		for _, n := range []int{f.Instructions, f.Most, f.Loads, f.StackStores, f.Shared, f.Atomics, f.Helpers} {
			row = append(row, fmt.Sprint(n))
		}
		t.Row(append(row, guardState(f))...)
	}
	e.Table(t)
}

// printLines prints the number of instructions that each function executes. The same number for each source line follows.
func (e *env) printLines(lines []guard.Line) {
	functions := map[string]int{}
	for _, l := range lines {
		functions[l.Function] += l.Instructions
	}
	names := slices.SortedFunc(maps.Keys(functions), func(a, b string) int {
		return cmp.Or(cmp.Compare(functions[b], functions[a]), cmp.Compare(a, b))
	})
	t := wording.NewTable(">INSTRUCTIONS", "FUNCTION", "SOURCE")
	for _, name := range names {
		t.Row(fmt.Sprint(functions[name]), name, "")
	}
	for _, l := range lines {
		t.Row(fmt.Sprint(l.Instructions), l.Function, cmp.Or(l.Source, "generated"))
	}
	e.Table(t)
}

// guardState returns the text for a finding: that the bound is exceeded, that the bound should be lower, or nothing.
func guardState(f *guard.Finding) string {
	switch {
	case f.Exceeded():
		return "EXCEEDED: " + f.Why
	case f.Loose():
		return fmt.Sprintf("lower the bound to %d", f.NewMost())
	}
	return ""
}
