package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/internal/bench/guard"
	"github.com/floodwall/floodwall/internal/display"
)

// benchGuardCommand is bench guard.
func benchGuardCommand(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "guard BOUNDS",
		Short: "check that no kind of packet executes more instructions than it may",
		Long: "Guard counts the instructions that the loaded program executes for each kind of packet, and compares them with BOUNDS.\n" +
			"Kinds: " + strings.Join(guard.Kinds(), ", "),
		Example: "  floodwall bench guard .ci/instructions.json",
		Args:    exactly(1, "BOUNDS, a file"),
		RunE:    func(c *cobra.Command, args []string) error { return e.benchGuard(c, args[0]) },
	}
	e.jsonFlag(c)
	return c
}

func (e *env) benchGuard(c *cobra.Command, path string) error {
	bounds, err := guard.Read(path)
	if err != nil {
		return err
	}
	if !privileged() {
		return &privilegeError{commandLine: e.commandLine}
	}
	findings, err := guard.Measure(c.Context(), bounds, e.stderr)
	if err != nil {
		return err
	}
	if e.json {
		err = e.printJSON(findings)
	} else {
		e.printFindings(findings)
	}
	for i := range findings {
		if err == nil && findings[i].Exceeded() {
			return errFailed
		}
	}
	return err
}

func (e *env) printFindings(findings []guard.Finding) {
	t := display.NewTable("PACKET", ">INSTRUCTIONS", ">MOST", ">LOADS", ">STACK STORES", ">SHARED WRITES", ">ATOMICS", ">HELPERS", "")
	for i := range findings {
		f := &findings[i]
		row := []string{f.Kind}
		for _, n := range []int{f.Instructions, f.Most, f.Loads, f.StackStores, f.Shared, f.Atomics, f.Helpers} {
			row = append(row, fmt.Sprint(n))
		}
		t.Row(append(row, guardState(f))...)
	}
	e.table(t)
}

// guardState is what is to be done about a finding.
func guardState(f *guard.Finding) string {
	switch {
	case f.Exceeded():
		return "EXCEEDED: " + f.Why
	case f.Loose():
		return fmt.Sprintf("lower the bound to %d", f.NewMost())
	}
	return ""
}
