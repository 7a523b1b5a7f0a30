// SPDX-License-Identifier: Apache-2.0

// This file compares the verdicts of a policy with the expected verdicts in a file of cases.

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Report is the result of all cases.
type Report struct {
	Policy string   `json:"policy"`
	Passed int      `json:"passed"`
	Failed int      `json:"failed"`
	Cases  []Result `json:"cases"`
}

// Result is the result of a case.
type Result struct {
	Line   int     `json:"line"`
	Packet string  `json:"packet"`
	OK     bool    `json:"ok"`
	Want   Outcome `json:"want"`
	Got    Outcome `json:"got"`
}

// Outcome is a verdict with its reason. An empty string matches any value.
type Outcome struct {
	Verdict string `json:"verdict"`
	Reason  string `json:"reason,omitempty"`
}

func (o Outcome) String() string {
	if o.Reason == "" {
		return o.Verdict
	}
	return o.Verdict + " " + o.Reason
}

// Run runs all cases in r. name is the file name of the cases in errors. If lines cannot be parsed, Run returns an error for each of these lines and
// runs no case.
func Run(c *control.Compiled, name string, r io.Reader) (*Report, error) {
	report := &Report{Policy: c.Policy.File, Cases: []Result{}}
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

func (t *Report) add(line int, wanted packet.Case, x control.Explanation) {
	want := Outcome{wanted.Verdict, wanted.Reason}
	r := Result{Line: line, Packet: x.Packet, Want: want, Got: Outcome{x.Verdict, x.Reason}}
	r.OK = want.Verdict == x.Verdict && (want.Reason == "" || want.Reason == x.Reason)
	if r.OK {
		t.Passed++
	} else {
		t.Failed++
	}
	t.Cases = append(t.Cases, r)
}
