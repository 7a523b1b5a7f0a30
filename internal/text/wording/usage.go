// SPDX-License-Identifier: Apache-2.0

// This file has the error for an invalid argument or flag. Packages that parse arguments return it without knowing the command.

package wording

import "fmt"

// Error is an error in an argument or a flag.
type Error struct {
	Text string // the message, which names the argument or the flag
	Hint string // the remedy; "": the help of the command is the remedy
}

func (e *Error) Error() string { return e.Text }

// Errorf returns an Error.
func Errorf(hint, format string, args ...any) error {
	return &Error{Text: fmt.Sprintf(format, args...), Hint: hint}
}
