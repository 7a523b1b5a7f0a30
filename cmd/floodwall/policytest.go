// This file compares the verdicts of a policy with those that a file of cases expects.

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

// Report is what all cases have come to.
type Report struct {
	Policy string   `json:"policy"`
	Passed int      `json:"passed"`
	Failed int      `json:"failed"`
	Cases  []Result `json:"cases"`
}

// Result is what a case has come to.
type Result struct {
	Line   int     `json:"line"`
	Packet string  `json:"packet"`
	OK     bool    `json:"ok"`
	Want   Outcome `json:"want"`
	Got    Outcome `json:"got"`
}

// Outcome is a verdict and its reason, "" for any.
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

// Run runs all cases that r has, which errors call name. Lines that cannot be read are all reported, and then no result is.
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
