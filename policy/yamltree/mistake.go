// SPDX-License-Identifier: Apache-2.0

package yamltree

import "fmt"

// Pos is a place in a file, both numbers from 1. Columns count characters, not bytes.
type Pos struct{ Line, Col int }

// Mistake is one mistake in a file.
type Mistake struct {
	Pos  Pos
	Msg  string // one line
	Hint string // one line with the remedy; may be empty
}

// report collects the mistakes of one file.
type report struct{ mistakes []*Mistake }

// errorf records a mistake. The caller may set the Hint of the result.
func (r *report) errorf(at Pos, format string, args ...any) *Mistake {
	m := &Mistake{Pos: at, Msg: fmt.Sprintf(format, args...)}
	r.mistakes = append(r.mistakes, m)
	return m
}
