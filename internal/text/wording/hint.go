package wording

import "errors"

// HintError is an error with its remedy. Code that has to tell errors apart has types of its own.
type HintError struct {
	Err    error
	Remedy string
}

// Hinted makes a HintError of a text.
func Hinted(problem, remedy string) *HintError { return WithHint(errors.New(problem), remedy) }

// WithHint is an error with a remedy.
func WithHint(err error, remedy string) *HintError { return &HintError{err, remedy} }

func (e *HintError) Error() string { return e.Err.Error() }

// Unwrap is the error alone.
func (e *HintError) Unwrap() error { return e.Err }

// Hint is the remedy.
func (e *HintError) Hint() string { return e.Remedy }
