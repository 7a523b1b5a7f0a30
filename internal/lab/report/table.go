// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
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
