// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/model/ir"
)

// StageError is the error for a rule that has no possible stage.
type StageError struct {
	File      string // of the policy; "" if it has none
	Rule      string
	Line, Col int // in the policy; 0 if unknown
	Key       string
	Cause     string
	Remedy    string
}

func (e *StageError) Error() string {
	return (&ir.Program{File: e.File}).Place(e.Line, e.Col) + e.Text()
}

// Text returns the error without its position.
func (e *StageError) Text() string { return fmt.Sprintf("rule %q: %s: %s", e.Rule, e.Key, e.Cause) }

// Hint returns the remedy.
func (e *StageError) Hint() string { return e.Remedy }

// StageErrors are the errors of all rules that have no possible stage.
type StageErrors []*StageError

// Error returns the first few errors, in one line.
func (es StageErrors) Error() string {
	const most = 3
	var texts []string
	for _, e := range es[:min(len(es), most)] {
		texts = append(texts, e.Error())
	}
	if more := len(es) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the individual errors, for errors.As.
func (es StageErrors) Unwrap() []error {
	errs := make([]error, len(es))
	for i, e := range es {
		errs[i] = e
	}
	return errs
}

// add appends e unless it is nil.
func (es *StageErrors) add(e *StageError) {
	if e != nil {
		*es = append(*es, e)
	}
}

// once returns the first error for each position. A service becomes several rules, so several errors may have the same position.
func (es StageErrors) once() (first StageErrors) {
	seen := map[[2]int]bool{}
	for _, e := range es {
		at := [2]int{e.Line, e.Col}
		if e.Line == 0 || !seen[at] {
			first = append(first, e)
		}
		seen[at] = true
	}
	return first
}

// refuse returns a StageError for a rule.
func (pl *Plan) refuse(r *ir.Rule, key, cause, remedy string) *StageError {
	return &StageError{pl.Program.File, r.Name, r.Line, r.Col, key, cause, remedy}
}
