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
	Msg       string // one line, begins with what it is about: `rule "web": …`
	Hint      string // one line that says what to write instead; may be empty
}

// Error is the mistake as `file:line:col: message`, and the hint in a line of its own.
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

// Error is all mistakes, one after the other, each beginning a line.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives the single mistakes to errors.As.
func (es Errors) Unwrap() []error {
	errs := make([]error, len(es))
	for i, e := range es {
		errs[i] = e
	}
	return errs
}

// sorted is es in the order of the file, without repetitions: what an alias repeats is one mistake. Control characters,
// which quoted YAML can hold, do not get as far as a terminal.
func (es Errors) sorted() Errors {
	for _, e := range es {
		e.Msg, e.Hint = wording.Plain(e.Msg), wording.Plain(e.Hint)
	}
	slices.SortStableFunc(es, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	return slices.CompactFunc(es, func(a, b *Error) bool { return *a == *b })
}

// flaw is what is wrong with one word of the policy. Its message goes on after the key: `port must be …`.
type flaw struct{ msg, hint string }

// Error is the message, which goes on after the name of the key.
func (f *flaw) Error() string { return f.msg }

// Hint is how to mend it, "" when that is not known.
func (f *flaw) Hint() string { return f.hint }

// want is the flaw of a text that is not what.
func want(what, text string) *flaw {
	return &flaw{msg: "must be " + what + ", got " + wording.Quote(text)}
}

// hintf says how to mend f.
func (f *flaw) hintf(format string, args ...any) *flaw {
	f.hint = fmt.Sprintf(format, args...)
	return f
}
