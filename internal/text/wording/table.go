// SPDX-License-Identifier: Apache-2.0

package wording

import (
	"strings"
	"unicode/utf8"
)

// Table has rows of cells, with a head. Lines aligns its columns.
type Table struct {
	head  []string
	right []bool // the columns that are aligned to the right
	rows  [][]string
}

// NewTable returns a table with this head. A column whose head begins with > is aligned to the right.
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

// Len returns the number of rows, without the head.
func (t *Table) Len() int { return len(t.rows) }

// Lines returns the head and the rows as lines with aligned columns.
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
