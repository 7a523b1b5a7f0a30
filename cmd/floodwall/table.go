package main

import (
	"strings"
	"unicode/utf8"
)

// table is rows of cells under a head, aligned when it is printed.
type table struct {
	head  []string
	right []bool // columns of numbers
	rows  [][]string
}

// newTable makes a table; columns whose head begins with > are aligned to the right.
func newTable(head ...string) *table {
	t := &table{right: make([]bool, len(head))}
	for i, h := range head {
		h, t.right[i] = strings.CutPrefix(h, ">")
		t.head = append(t.head, h)
	}
	return t
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// table prints a table, and nothing when it has no rows.
func (u *ui) table(t *table) {
	if len(t.rows) > 0 {
		u.text(strings.Join(t.lines(), "\n") + "\n")
	}
}

// lines are the head and the rows, aligned.
func (t *table) lines() (lines []string) {
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
		lines = append(lines, printable(strings.TrimRight(line.String(), " ")))
	}
	return lines
}
