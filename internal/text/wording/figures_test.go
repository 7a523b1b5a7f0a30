// SPDX-License-Identifier: Apache-2.0

package wording

import (
	"slices"
	"testing"
	"time"
)

// TestFigures checks the text of numbers, also of those at which the unit changes.
func TestFigures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{Count(0), "0"}, {Count(999), "999"}, {Count(1000), "1,000"}, {Count(262144), "262,144"}, {Count(uint64(1<<64 - 1)), "18,446,744,073,709,551,615"},
		{Things(0, "rule", "rules"), "0 rules"}, {Things(1, "rule", "rules"), "1 rule"}, {Things(1200, "rule", "rules"), "1,200 rules"},
		{Bytes(0), "0 B"}, {Bytes(999), "999 B"}, {Bytes(1000), "1.0 kB"}, {Bytes(99_940), "99.9 kB"}, {Bytes(99_960), "100 kB"},
		{Bytes(999_499), "999 kB"}, {Bytes(999_500), "1.0 MB"}, {Bytes(5e15), "5.0 PB"},
		{Span(0), "0s"}, {Span(999 * time.Millisecond), "0s"}, {Span(59 * time.Second), "59s"}, {Span(time.Hour), "1h"},
		{Span(59*time.Minute + 12*time.Second), "59m12s"}, {Span(76*time.Hour + 59*time.Minute), "3d4h"}, {Span(24*time.Hour + time.Minute), "1d"},
		{Rate(0), "0"}, {Rate(9.94), "9.9"}, {Rate(10.4), "10"}, {Rate(12345), "12,345"}, {Rate(1.234e6), "1.23M"}, {Rate(4.56e9), "4.56G"}, {Rate(1e12), "1.00T"},
		{Printable("a\tb\x1b[2J\n\u009bc"), "a\tb\ufffd[2J\ufffd\ufffdc"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// TestWrapped breaks texts into lines.
func TestWrapped(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"": {""}, "  one  two ": {"one two"}, "one two three": {"one two", "three"}, "a wordthatislong b": {"a", "wordthatislong", "b"},
	} {
		if got := Wrapped(text, 7); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestTable checks that columns are aligned by characters, not by bytes, and that cells cannot contain control characters.
func TestTable(t *testing.T) {
	t.Parallel()
	table := NewTable("name", ">packets", "why")
	table.Row("ä", "1,000", "")
	table.Row("longer", "7", "x\x1by")
	want := []string{
		"name    packets  why",
		"ä         1,000",
		"longer        7  x\ufffdy",
	}
	if got := table.Lines(); !slices.Equal(got, want) || table.Len() != 2 {
		t.Errorf("%d rows:\n%q, want\n%q", table.Len(), got, want)
	}
	var text Text
	text.Line("%s", "a\rb")
	if got := text.String(); got != "a\ufffdb\n" {
		t.Errorf("%q", got)
	}
}
