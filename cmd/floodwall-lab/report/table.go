// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// Table is a table of figures for people.
type Table struct {
	Title string     `json:"title"`
	Head  []string   `json:"head"` // the first column is text; cells of the others that begin with a figure are aligned right
	Rows  [][]string `json:"rows"`
	Notes []string   `json:"notes,omitempty"`
	Text  bool       `json:"text,omitempty"` // no column has figures
}

// AddRow adds a row.
func (t *Table) AddRow(cells ...string) { t.Rows = append(t.Rows, cells) }

// AddNote adds a line below the table. It does not repeat a line that is already there.
func (t *Table) AddNote(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(t.Notes, text) {
		t.Notes = append(t.Notes, text)
	}
}

// WriteText writes the table with aligned columns.
func (t *Table) WriteText(w io.Writer) error {
	var out strings.Builder
	width := t.widths()
	fmt.Fprintf(&out, "%s\n\n", t.Title)
	for _, row := range t.All() {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if t.Figures(i) {
				cell, pad = pad+cell, ""
			}
			line.WriteString("  " + cell + pad)
		}
		fmt.Fprintln(&out, strings.TrimRight(line.String(), " "))
	}
	out.WriteByte('\n')
	for _, n := range t.Notes {
		fmt.Fprintf(&out, "  %s\n", n)
	}
	if len(t.Notes) > 0 {
		out.WriteByte('\n')
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// All returns the head and the rows.
func (t *Table) All() [][]string { return append([][]string{t.Head}, t.Rows...) }

func (t *Table) widths() []int {
	width := make([]int, len(t.Head))
	for _, row := range t.All() {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	return width
}

// Figures reports whether a column has figures, which are aligned right. All columns have figures except the first, and the last if it has no head
// (remarks). A table of text has none.
func (t *Table) Figures(column int) bool {
	return !t.Text && column > 0 && (column < len(t.Head)-1 || t.Head[column] != "")
}

// Paragraphs joins lines that belong to one paragraph. A line continues in the next one, unless it ends with a full stop or code, or the next one
// starts with a mark and explains it.
func Paragraphs(lines []string) (paragraphs []string) {
	whole := true
	for _, line := range lines {
		if whole || strings.ContainsAny(line[:min(1, len(line))], marks) {
			paragraphs = append(paragraphs, line)
		} else {
			paragraphs[len(paragraphs)-1] += " " + line
		}
		whole = strings.HasSuffix(line, ".") || strings.HasSuffix(line, "`")
	}
	return paragraphs
}

// marks are the marks of rows.
const marks = "~^"

// WriteMarkdown writes the table in GitHub's notation.
func (t *Table) WriteMarkdown(w io.Writer) error {
	var out strings.Builder
	fmt.Fprintf(&out, "### %s\n\n", t.Title)
	line := func(cells []string) {
		for _, c := range cells {
			fmt.Fprintf(&out, "| %s ", strings.ReplaceAll(c, "|", `\|`))
		}
		out.WriteString("|\n")
	}
	line(t.Head)
	rule := make([]string, len(t.Head))
	for i := range rule {
		rule[i] = "---"
		if t.Figures(i) {
			rule[i] = "---:"
		}
	}
	line(rule)
	for _, row := range t.Rows {
		line(row)
	}
	out.WriteByte('\n')
	for _, n := range Paragraphs(t.Notes) {
		fmt.Fprintf(&out, "- %s\n", n)
	}
	if len(t.Notes) > 0 {
		out.WriteByte('\n')
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// Choice returns yes if b is true, else no.
func Choice[T any](b bool, yes, no T) T {
	if b {
		return yes
	}
	return no
}

// CountText writes a number with thousands separators.
func CountText(n int) string { return wording.Count(n) }

// Things returns text for a number of things, for example "1 route" and "2,000 routes".
func Things(n int, one, more string) string { return wording.Things(n, one, more) }

// SecondsText writes seconds with three significant digits.
func SecondsText(s float64) string {
	digits := 2 - int(math.Floor(math.Log10(max(s, 0.001))))
	return fmt.Sprintf("%.*f", max(0, digits), s)
}

// TimesText writes a ratio of two figures.
func TimesText(times float64) string { return fmt.Sprintf("%.2f x", times) }
