package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/internal/control"
	"github.com/floodwall/floodwall/internal/packet"
	"github.com/floodwall/floodwall/internal/plan"
)

func testCommand(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "test POLICY CASES",
		Short: "check a policy against packets with the verdicts they must get",
		Long: "Test compares the policy's verdicts with those that the file CASES expects. A line is a packet, a verdict and, if wanted, a reason:\n" +
			"tcp 198.51.100.7:1234 > 192.0.2.1:80 S  drop listed",
		Example: "  floodwall test policy.yaml cases.txt",
		Args:    exactly(2, "POLICY and CASES, two files"),
		RunE:    func(c *cobra.Command, args []string) error { return test(c.Context(), e, args[0], args[1]) },
	}
	e.jsonFlag(c)
	return c
}

// testReport is the answer of test as JSON.
type testReport struct {
	Policy string       `json:"policy"`
	Passed int          `json:"passed"`
	Failed int          `json:"failed"`
	Cases  []testResult `json:"cases"`
}

type testResult struct {
	Line   int     `json:"line"`
	Packet string  `json:"packet"`
	OK     bool    `json:"ok"`
	Want   outcome `json:"want"`
	Got    outcome `json:"got"`
}

// outcome is a verdict and its reason, "" for any.
type outcome struct {
	Verdict string `json:"verdict"`
	Reason  string `json:"reason,omitempty"`
}

func (o outcome) String() string {
	if o.Reason == "" {
		return o.Verdict
	}
	return o.Verdict + " " + o.Reason
}

func test(ctx context.Context, e *env, file, cases string) error {
	c, err := e.compiled(ctx, file)
	if err != nil {
		return err
	}
	in := e.stdin
	if cases == "-" {
		cases = "standard input"
	} else {
		f, err := os.Open(cases)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	report, err := interruptible(ctx, func() (*testReport, error) { return runCases(c, cases, in) })
	if err != nil {
		return err
	}
	if e.json {
		err = e.printJSON(report)
	} else {
		printTest(e, cases, report)
	}
	if err == nil && report.Failed > 0 {
		return errFailed
	}
	return err
}

func printTest(e *env, cases string, report *testReport) {
	for _, r := range report.Cases {
		if !r.OK {
			e.println("%s:%d: %s: want %s, got %s", cases, r.Line, r.Packet, r.Want, r.Got)
		}
	}
	if report.Failed > 0 {
		e.println("%s: %d of %s failed", cases, report.Failed, things(len(report.Cases), "case", "cases"))
		return
	}
	e.println("%s: ok: %s", cases, things(report.Passed, "case", "cases"))
}

// runCases runs all cases. Lines that cannot be read are all reported, and then no result is.
func runCases(c *control.Compiled, name string, r io.Reader) (*testReport, error) {
	report := &testReport{Policy: c.Policy.File, Cases: []testResult{}}
	var errs []error
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		wanted, err := packet.ParseCase(lines.Text())
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", name, n, err))
			continue
		}
		if !wanted.Blank {
			x, err := c.Explain(wanted.Packet, plan.TargetXDP)
			if err != nil {
				return nil, err
			}
			report.add(n, wanted, x)
		}
	}
	if err := lines.Err(); err != nil {
		errs = append(errs, fmt.Errorf("%s: %w", name, err))
	}
	if len(errs) == 0 && len(report.Cases) == 0 {
		errs = append(errs, fmt.Errorf("%s: there is no case in it", name))
	}
	return report, errors.Join(errs...)
}

func (t *testReport) add(line int, wanted packet.Case, x control.Explanation) {
	want := outcome{wanted.Verdict, wanted.Reason}
	r := testResult{Line: line, Packet: x.Packet, Want: want, Got: outcome{x.Verdict, x.Reason}}
	r.OK = want.Verdict == x.Verdict && (want.Reason == "" || want.Reason == x.Reason)
	if r.OK {
		t.Passed++
	} else {
		t.Failed++
	}
	t.Cases = append(t.Cases, r)
}
