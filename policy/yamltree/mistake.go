// Package yamltree reads a YAML document into a tree of values. Each value has its place in the file. Mistakes have a line, a column and
// a remedy. Every value is text as it was written, and a word with colons in it needs no quotes. Tags, merge keys and second documents are
// refused. The package knows no key of a policy, but its remedies name policies, since Floodwall reads nothing else in this way.
//
// Read read.go first, then node.go. syntax.go explains the messages of the YAML library.
package yamltree

import "fmt"

// Pos is a place in a file, both numbers from 1. Columns count characters, not bytes.
type Pos struct{ Line, Col int }

// Mistake is one thing that is wrong with a file.
type Mistake struct {
	Pos  Pos
	Msg  string // one line
	Hint string // one line that says how to mend it; may be empty
}

// report collects the mistakes of one file.
type report struct{ mistakes []*Mistake }

// errorf notes a mistake. The caller may set the Hint of what it returns.
func (r *report) errorf(at Pos, format string, args ...any) *Mistake {
	m := &Mistake{Pos: at, Msg: fmt.Sprintf(format, args...)}
	r.mistakes = append(r.mistakes, m)
	return m
}
