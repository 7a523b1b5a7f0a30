// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/internal/text/wording"
)

func testCommand(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "test POLICY CASES",
		Short: "check a policy against packets with the verdicts they must get",
		Long: "Test compares the policy's verdicts with those that the file CASES expects. A line is a packet, a verdict and, if wanted, a reason:\n" +
			"tcp 198.51.100.7:1234 > 192.0.2.1:80 S  drop listed",
		Example: "  floodwall test policy.yaml cases.txt",
		Args:    cli.Exactly(2, "POLICY and CASES, two files (- is standard input)"),
		RunE:    func(c *cobra.Command, args []string) error { return test(c.Context(), e, args[0], args[1]) },
	}
	e.JSONFlag(c)
	return c
}

func test(ctx context.Context, e *env, file, cases string) error {
	if file == stdinWord && cases == stdinWord {
		return &operate.OrderError{Problem: "standard input is given twice", Remedy: "name a file for one of the two"}
	}
	c, err := e.compiled(ctx, file)
	if err != nil {
		return err
	}
	in := e.Stdin
	if cases == stdinWord {
		cases = "standard input"
	} else {
		f, err := os.Open(cases)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	report, err := periodic.Within(ctx, func() (*Report, error) { return Run(c, cases, in) })
	if err != nil {
		return err
	}
	if e.JSON {
		err = e.PrintJSON(report)
	} else {
		printTest(e, cases, report)
	}
	if err == nil && report.Failed > 0 {
		return cli.ErrFailed
	}
	return err
}

func printTest(e *env, cases string, report *Report) {
	for _, r := range report.Cases {
		if !r.OK {
			e.Println("%s:%d: %s: want %s, got %s", cases, r.Line, r.Packet, r.Want, r.Got)
		}
	}
	if report.Failed > 0 {
		e.Println("%s: %d of %s failed", cases, report.Failed, wording.Things(len(report.Cases), "case", "cases"))
		return
	}
	e.Println("%s: ok: %s", cases, wording.Things(report.Passed, "case", "cases"))
}
