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

// All that the commands say goes through this file. Its rules:
//
//   - The answer goes to standard output, all about the way to it to standard error.
//   - A line on standard error begins with `floodwall: ` and its kind: error, hint, usage, warning or note. A hint
//     follows the error that it helps with.
//   - Messages begin in lower case and have no final period. They look the same on a terminal and in a file.
//   - Numbers for people have separators or units; those in JSON have neither.
//   - With --json standard output holds one JSON value and nothing else.
//   - What came from a file, the network or the command line cannot send control characters to a terminal.

// Exit statuses of all programs.
const (
	ExitFailed      = 1 // or a verdict differs
	ExitUsage       = 2
	ExitInterrupted = 130 // 128 + SIGINT, as shells have it
)

// ErrFailed ends a command with ExitFailed when all has been said already.
var ErrFailed = errors.New("failed")

// UI is where a command speaks.
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

// Report prints all errors that err consists of, each with its hint.
func (u *UI) Report(err error) {
	for _, p := range operate.Problems(err) {
		u.StderrLine("error", p.String())
		u.StderrLine("hint", p.Hint)
	}
}

// Warning warns of something that does not end the command.
func (u *UI) Warning(text string) { u.StderrLine("warning", text) }

// Note says something that is good to know.
func (u *UI) Note(text string) { u.StderrLine("note", text) }

// Notes prints some notes.
func (u *UI) Notes(texts []string) {
	for _, t := range texts {
		u.Note(t)
	}
}

// StderrLine prints a message of some kind; nothing when there is no text. Each line of the text begins anew.
func (u *UI) StderrLine(kind, text string) {
	if text == "" {
		return
	}
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintf(u.Stderr, "floodwall: %s: %s\n", kind, wording.Printable(line))
	}
}

// Println prints a line of the answer.
func (u *UI) Println(format string, args ...any) {
	fmt.Fprintln(u.Stdout, wording.Printable(fmt.Sprintf(format, args...)))
}

// Text prints an answer that has lines of its own.
func (u *UI) Text(text string) { io.WriteString(u.Stdout, text) }

// PrintJSON prints the answer as JSON.
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

// IsTerminal reports whether a terminal is behind out.
func IsTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
