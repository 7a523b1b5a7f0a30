// SPDX-License-Identifier: Apache-2.0

// This file writes the daemon's events to systemd's journal with fields (systemd.journal-fields(7)), so that journalctl and programs can filter them.
// In: texts with fields. Out: entries at journald's socket, or lines to another writer while journald takes none.

package integrations

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/coreos/go-systemd/v22/journal"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// Connected reports whether standard error is a stream to the journal. systemd sets $JOURNAL_STREAM to the file of that stream. A child process
// inherits the variable, so it counts only if standard error is that file (systemd.exec(5)).
func Connected() bool {
	is, err := journal.StderrIsJournalStream()
	return is && err == nil
}

// Level is the priority of an entry, as in syslog(3).
type Level = journal.Priority

// The levels.
const (
	Warning = journal.PriWarning
	Notice  = journal.PriNotice
	Info    = journal.PriInfo
)

// prefix is the prefix of all field names of Floodwall.
const prefix = "FLOODWALL_"

// Log writes to the journal.
type Log struct {
	Instance string    // the directory of the instance, a field of each entry
	Else     io.Writer // gets the text of an entry when journald does not accept the entry
}

// Write writes an entry. Field names consist of upper-case letters and _, and get a prefix. Fields without a value are omitted. A value may contain
// any bytes: a line in a value cannot become another field (https://systemd.io/JOURNAL_NATIVE_PROTOCOL/). Control characters in the text are
// replaced.
func (l Log) Write(level Level, text string, fields map[string]string) {
	text = wording.Printable(text)
	all := map[string]string{"SYSLOG_IDENTIFIER": "floodwall", prefix + "INSTANCE": l.Instance}
	for name, value := range fields {
		if value != "" {
			all[prefix+name] = value
		}
	}
	if err := journal.Send(text, level, all); err != nil {
		fmt.Fprintln(l.Else, text)
	}
}

// Audit returns a slog.Handler for the audit log. An entry contains the line of slog.TextHandler without its time, the field AUDIT with the message,
// and a field for each attribute.
func (l Log) Audit() slog.Handler { return audit{l} }

type audit struct{ Log }

func (audit) Enabled(context.Context, slog.Level) bool { return true }

func (a audit) Handle(ctx context.Context, r slog.Record) error {
	var line bytes.Buffer
	text := slog.NewTextHandler(&line, &slog.HandlerOptions{ReplaceAttr: func(_ []string, attr slog.Attr) slog.Attr {
		if attr.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return attr
	}})
	if err := text.Handle(ctx, r); err != nil {
		return err
	}
	fields := map[string]string{"AUDIT": r.Message}
	r.Attrs(func(attr slog.Attr) bool {
		fields[strings.ToUpper(attr.Key)] = attr.Value.String()
		return true
	})
	level := Notice
	if r.Level >= slog.LevelWarn {
		level = Warning
	}
	a.Write(level, strings.TrimSpace(line.String()), fields)
	return nil
}

func (a audit) WithAttrs([]slog.Attr) slog.Handler { return a } // the audit log uses no attributes of loggers
func (a audit) WithGroup(string) slog.Handler      { return a }
