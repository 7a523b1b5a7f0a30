// SPDX-License-Identifier: Apache-2.0

package wording

import "errors"

// HintError is an error with a remedy. Code that must distinguish errors uses types of its own.
type HintError struct {
	Err    error
	Remedy string
}

// Hinted returns an error with a remedy.
func Hinted(problem, remedy string) *HintError { return WithHint(errors.New(problem), remedy) }

// WithHint adds a remedy to an error.
func WithHint(err error, remedy string) *HintError { return &HintError{err, remedy} }

func (e *HintError) Error() string { return e.Err.Error() }

// Unwrap returns the error without the remedy.
func (e *HintError) Unwrap() error { return e.Err }

// Hint returns the remedy.
func (e *HintError) Hint() string { return e.Remedy }
