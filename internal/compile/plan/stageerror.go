package plan

import (
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/model/ir"
)

// StageError says that a rule has no stage.
type StageError struct {
	File      string // of the policy; "" when it has none
	Rule      string
	Line, Col int // in the policy; 0 when it is not known
	Key       string
	Cause     string
	Remedy    string
}

func (e *StageError) Error() string {
	return (&ir.Program{File: e.File}).Place(e.Line, e.Col) + e.Text()
}

// Text is the error without its place.
func (e *StageError) Text() string { return fmt.Sprintf("rule %q: %s: %s", e.Rule, e.Key, e.Cause) }

// Hint is the remedy.
func (e *StageError) Hint() string { return e.Remedy }

// StageErrors are those of all rules that have no stage.
type StageErrors []*StageError

// Error is the first few, in one line.
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

// Unwrap gives the single errors to errors.As.
func (es StageErrors) Unwrap() []error {
	errs := make([]error, len(es))
	for i, e := range es {
		errs[i] = e
	}
	return errs
}

// add adds an error, if it is one.
func (es *StageErrors) add(e *StageError) {
	if e != nil {
		*es = append(*es, e)
	}
}

// once is the first error of each place: a service is several rules.
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

// refuse is the error of a rule.
func (pl *Plan) refuse(r *ir.Rule, key, cause, remedy string) *StageError {
	return &StageError{pl.Program.File, r.Name, r.Line, r.Col, key, cause, remedy}
}
