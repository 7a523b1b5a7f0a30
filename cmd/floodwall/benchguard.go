package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/internal/bench/guard"
)

// benchGuardCommand is bench guard.
func benchGuardCommand(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "guard BOUNDS",
		Short: "check that no kind of packet executes more instructions than it may",
		Long: "BOUNDS is a JSON array: {\"kind\": \"rules=20\", \"most\": 553, \"why\": \"...\"}. Guard applies a policy for each kind in\n" +
			"a network namespace that vanishes with it, and interprets the program that the kernel has made of it. It counts the\n" +
			"instructions that a packet executes. No time is measured, so the figures are the same on a machine that is busy.\n" +
			"`listed` and `unlisted` are means of many sources, which random keys change by one at most.\n" +
			"The exit status is 1 when a bound is exceeded. A bound more than 5% above its figure is to be lowered.\n\n" +
			"kinds: " + strings.Join(guard.Kinds(), ", "),
		Args: exactly(1, "BOUNDS, a file"),
		RunE: func(c *cobra.Command, args []string) error { return e.benchGuard(c, args[0]) },
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
	t := newTable("PACKET", ">INSTRUCTIONS", ">MOST", ">LOADS", ">STACK STORES", ">ATOMICS", ">HELPERS", "")
	for i := range findings {
		f := &findings[i]
		row := []string{f.Kind}
		for _, n := range []int{f.Instructions, f.Most, f.Loads, f.StackStores, f.Atomics, f.Helpers} {
			row = append(row, fmt.Sprint(n))
		}
		t.row(append(row, guardState(f))...)
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
