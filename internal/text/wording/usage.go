// This file has the error for an argument or a flag that is not understood. Packages that read what a person wrote for a command
// return it, and know no command.

package wording

import "fmt"

// Error is what is wrong with an argument or a flag.
type Error struct {
	Text string // names the argument or the flag
	Hint string // what to write in its place; "" for the help of the command
}

func (e *Error) Error() string { return e.Text }

// Errorf makes an Error.
func Errorf(hint, format string, args ...any) error {
	return &Error{Text: fmt.Sprintf(format, args...), Hint: hint}
}
