package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/text/display"
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

// Exit statuses.
const (
	exitFailed      = 1 // or a verdict differs
	exitUsage       = 2
	exitInterrupted = 130 // 128 + SIGINT, as shells have it
)

// errFailed ends a command with exitFailed when all has been said already.
var errFailed = errors.New("failed")

type ui struct{ stdout, stderr io.Writer }

// exit reports a command's error and returns the exit status.
func (u *ui) exit(err error) int {
	var wrong *usageError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errFailed):
		return exitFailed
	case errors.Is(err, context.Canceled):
		u.stderrLine("note", "interrupted")
		return exitInterrupted
	case errors.As(err, &wrong):
		u.stderrLine("error", wrong.Error())
		u.stderrLine("usage", wrong.usage)
		u.stderrLine("hint", wrong.hint)
		return exitUsage
	}
	u.report(err)
	return exitFailed
}

// report prints all errors that err consists of, each with its hint.
func (u *ui) report(err error) {
	for _, p := range operate.Problems(err) {
		u.stderrLine("error", p.String())
		u.stderrLine("hint", p.Hint)
	}
}

func (u *ui) warning(text string) { u.stderrLine("warning", text) }
func (u *ui) note(text string)    { u.stderrLine("note", text) }

func (u *ui) notes(texts []string) {
	for _, t := range texts {
		u.note(t)
	}
}

// stderrLine prints a message of some kind; nothing when there is no text. Each line of the text begins anew.
func (u *ui) stderrLine(kind, text string) {
	if text == "" {
		return
	}
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintf(u.stderr, "floodwall: %s: %s\n", kind, display.Printable(line))
	}
}

// println prints a line of the answer.
func (u *ui) println(format string, args ...any) {
	fmt.Fprintln(u.stdout, display.Printable(fmt.Sprintf(format, args...)))
}

// text prints an answer that has lines of its own.
func (u *ui) text(text string) { io.WriteString(u.stdout, text) }

// printJSON prints the answer as JSON.
func (u *ui) printJSON(v any) error {
	enc := json.NewEncoder(u.stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// table prints a table, and nothing when it has no rows.
func (u *ui) table(t *display.Table) {
	if t.Len() > 0 {
		u.text(strings.Join(t.Lines(), "\n") + "\n")
	}
}
