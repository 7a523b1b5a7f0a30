package report

import (
	"strings"
)

// cell is a cell of a table.
type cell struct {
	Text  string
	Class string
	Span  int // columns
}

// longestMark is the largest number of letters of a mark. A longer remark is a reason.
const longestMark = 3

// cells returns the cells of a row. The reason why figures are missing takes their place.
func cells(t *Table, row []string) (all []cell) {
	for i, text := range row {
		all = append(all, cell{text, kind(t, i, text), 1})
	}
	last := len(all) - 1
	if last < 1 || t.Figures(last) || len(all[last].Text) <= longestMark {
		return all
	}
	reason := all[last]
	for all = all[:last]; len(all) > 1 && all[len(all)-1].Text == ""; all = all[:len(all)-1] {
		reason.Span++
	}
	reason.Class = "reason"
	return append(all, reason)
}

// kind returns the CSS class of a table's cell.
func kind(t *Table, column int, text string) string {
	switch {
	case strings.Contains(text, "MISSED"):
		return "figure missed"
	case t.Figures(column):
		return "figure"
	}
	return ""
}

// rowKind returns the CSS class of a table's row.
func rowKind(row []string) string {
	return Choice(len(row) > 0 && strings.Contains(row[0], "floodwall"), "own", "")
}
