package wording

import (
	"strings"
	"unicode/utf8"
)

// Table is rows of cells under a head, aligned when it is printed.
type Table struct {
	head  []string
	right []bool // columns of numbers
	rows  [][]string
}

// NewTable makes a table; columns whose head begins with > are aligned to the right.
func NewTable(head ...string) *Table {
	t := &Table{right: make([]bool, len(head))}
	for i, h := range head {
		h, t.right[i] = strings.CutPrefix(h, ">")
		t.head = append(t.head, h)
	}
	return t
}

// Row adds a row, with a cell for each column.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, cells) }

// Len is the number of rows, without the head.
func (t *Table) Len() int { return len(t.rows) }

// Lines are the head and the rows, aligned.
func (t *Table) Lines() (lines []string) {
	width := make([]int, len(t.head))
	all := append([][]string{t.head}, t.rows...)
	for _, row := range all {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range all {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if t.right[i] {
				cell, pad = pad+cell, ""
			}
			line.WriteString(cell + pad + "  ")
		}
		lines = append(lines, Printable(strings.TrimRight(line.String(), " ")))
	}
	return lines
}
