// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// All output of the commands goes through this file. Its rules:
//
//   - The result goes to standard output, messages about the work go to standard error.
//   - A line on standard error begins with `floodwall: ` and its kind: error, hint, usage, warning or note. A hint
//     follows the error that it helps with.
//   - Messages begin in lower case and have no final period. They look the same on a terminal and in a file.
//   - Numbers for people have separators or units; those in JSON have neither.
//   - With --json standard output holds one JSON value and nothing else.
//   - Text from a file, the network or the command line cannot send control characters to a terminal.

// Exit statuses of all programs.
const (
	ExitFailed      = 1 // or a verdict differs from the expected one
	ExitUsage       = 2
	ExitInterrupted = 130 // 128 + SIGINT, as in shells
)

// ErrFailed is returned by a command that has already printed its error. The exit status is then ExitFailed.
var ErrFailed = errors.New("failed")

// UI is the output of a command.
type UI struct{ Stdout, Stderr io.Writer }

// Exit reports a command's error and returns the exit status.
func (u *UI) Exit(err error) int {
	var wrong *usageError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrFailed):
		return ExitFailed
	case errors.Is(err, context.Canceled):
		u.StderrLine("note", "interrupted")
		return ExitInterrupted
	case errors.As(err, &wrong):
		u.StderrLine("error", wrong.Error())
		u.StderrLine("usage", wrong.usage)
		u.StderrLine("hint", wrong.hint)
		return ExitUsage
	}
	u.Report(err)
	return ExitFailed
}

// Report prints each error that err joins, with its hint.
func (u *UI) Report(err error) {
	for _, p := range operate.Problems(err) {
		u.StderrLine("error", p.String())
		u.StderrLine("hint", p.Hint)
	}
}

// Warning prints a warning, which does not end the command.
func (u *UI) Warning(text string) { u.StderrLine("warning", text) }

// Note prints a note.
func (u *UI) Note(text string) { u.StderrLine("note", text) }

// Notes prints notes.
func (u *UI) Notes(texts []string) {
	for _, t := range texts {
		u.Note(t)
	}
}

// StderrLine prints a message of a kind to standard error. Each line of the text gets the prefix. Nothing is printed for an empty text.
func (u *UI) StderrLine(kind, text string) {
	if text == "" {
		return
	}
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintf(u.Stderr, "floodwall: %s: %s\n", kind, wording.Printable(line))
	}
}

// Println prints a line of the output.
func (u *UI) Println(format string, args ...any) {
	fmt.Fprintln(u.Stdout, wording.Printable(fmt.Sprintf(format, args...)))
}

// Text prints output with several lines.
func (u *UI) Text(text string) { io.WriteString(u.Stdout, text) }

// PrintJSON prints the output as JSON.
func (u *UI) PrintJSON(v any) error {
	enc := json.NewEncoder(u.Stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Table prints a table, and nothing when it has no rows.
func (u *UI) Table(t *wording.Table) {
	if t.Len() > 0 {
		u.Text(strings.Join(t.Lines(), "\n") + "\n")
	}
}

// IsTerminal reports whether out is a terminal.
func IsTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
