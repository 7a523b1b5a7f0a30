// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// Error is one mistake in a policy file.
type Error struct {
	File      string
	Line, Col int    // from 1; Col counts characters, not bytes
	Msg       string // one line, which begins with the part of the policy: `rule "web": …`
	Hint      string // one line with the correction; may be empty
}

// Error returns the mistake as `file:line:col: message`, with the hint in a line of its own.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Col, e.Msg)
	if e.Hint != "" {
		s += "\n  hint: " + e.Hint
	}
	return s
}

// Errors holds all mistakes of a policy file, in the order of their positions. It is never empty when it is returned as
// an error.
type Errors []*Error

// Error returns all mistakes, one after the other, each at the start of a line.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the single mistakes, for errors.As.
func (es Errors) Unwrap() []error {
	errs := make([]error, len(es))
	for i, e := range es {
		errs[i] = e
	}
	return errs
}

// sorted returns es in the order of the file, without repetitions: a mistake that a YAML alias repeats counts once. It
// removes control characters, which quoted YAML can contain, so that they do not reach a terminal.
func (es Errors) sorted() Errors {
	for _, e := range es {
		e.Msg, e.Hint = wording.Plain(e.Msg), wording.Plain(e.Hint)
	}
	slices.SortStableFunc(es, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	return slices.CompactFunc(es, func(a, b *Error) bool { return *a == *b })
}

// flaw is a mistake in one word of the policy. Its message continues a text that begins with the key: `port must be …`.
type flaw struct{ msg, hint string }

// Error returns the message, without the name of the key in front of it.
func (f *flaw) Error() string { return f.msg }

// Hint returns the remedy, "" if none is known.
func (f *flaw) Hint() string { return f.hint }

// want returns the flaw of a text that is not one of the values that what describes.
func want(what, text string) *flaw {
	return &flaw{msg: "must be " + what + ", got " + wording.Quote(text)}
}

// hintf sets the hint of f.
func (f *flaw) hintf(format string, args ...any) *flaw {
	f.hint = fmt.Sprintf(format, args...)
	return f
}
