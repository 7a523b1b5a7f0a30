// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// WriteText writes the runs, the warnings, the means of the experiments, and the rows that changed, or all.
func (c *ReportComparison) WriteText(w io.Writer, all bool) error {
	var out strings.Builder
	fmt.Fprintf(&out, "old: %s\nnew: %s\n", c.Old, c.New)
	for _, text := range c.Warnings {
		fmt.Fprintf(&out, "warning: %s\n", text)
	}
	out.WriteByte('\n')
	tables := []Table{c.meansTable(), c.rowsTable(all)}
	for i := range tables {
		if len(tables[i].Rows) > 0 {
			if err := tables[i].WriteText(&out); err != nil {
				return err
			}
		}
	}
	only(&out, "only in the old run", c.OnlyOld)
	only(&out, "only in the new run", c.OnlyNew)
	fmt.Fprintln(&out, c.summary())
	_, err := io.WriteString(w, out.String())
	return err
}

func only(out *strings.Builder, where string, names []string) {
	if len(names) > 0 {
		fmt.Fprintf(out, "%s: %s\n\n", where, strings.Join(names, ", "))
	}
}

// String returns the run in one line.
func (r ComparedRun) String() string {
	return fmt.Sprintf("%s, %s", r.Time.Format("2006-01-02 15:04:05 MST"), r.Machine)
}

var changeHead = []string{"", "figure", "old", "new", "delta", "p", "rounds", ""}

func (c *ReportComparison) meansTable() Table {
	t := Table{Title: "geometric means", Head: changeHead}
	for i := range c.Means {
		m := &c.Means[i]
		whose := "all others'"
		if m.Own {
			whose = "Floodwall's"
		}
		t.Rows = append(t.Rows, m.cells(fmt.Sprintf("%s, %s %d rows", m.Name, whose, m.Rows)))
	}
	return t
}

func (c *ReportComparison) rowsTable(all bool) Table {
	t := Table{Title: "rows that changed", Head: changeHead, Notes: []string{
		"Medians of the rounds. Figures of-... are shares, in the same round, of the rate of the limit, of no firewall, or of the",
		"yardstick, a program that no build changes. p: that nothing has changed, by Mann and Whitney's U test, corrected for",
		"the number of comparisons by Benjamini and Hochberg's.",
	}}
	if all {
		t.Title = "all rows"
	}
	for i := range c.Rows {
		if r := &c.Rows[i]; all || r.Verdict != Same {
			t.Rows = append(t.Rows, r.cells(r.Name))
		}
	}
	return t
}

func (c *Change) cells(name string) []string {
	rounds := strconv.Itoa(c.Rounds[0])
	if c.Rounds[1] != c.Rounds[0] {
		rounds += "+" + strconv.Itoa(c.Rounds[1])
	}
	verdict := string(c.Verdict)
	if c.Verdict == Same {
		verdict = ""
	}
	return []string{
		name, c.Unit, figure(c.Old), figure(c.New), fmt.Sprintf("%+.1f%%", 100*c.Delta), fmt.Sprintf("%.3f", c.Q), rounds, verdict,
	}
}

// figure returns a figure with four digits.
func figure(v float64) string {
	if v >= 1e6 {
		return fmt.Sprintf("%.3e", v)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// summary returns the result in one line.
func (c *ReportComparison) summary() string {
	count := make(map[ChangeVerdict]int)
	for _, list := range [][]Change{c.Means, c.Rows} {
		for i := range list {
			count[list[i].Verdict]++
		}
	}
	if count[Same] == len(c.Means)+len(c.Rows) {
		return fmt.Sprintf("no significant change in %d figures and %d means", len(c.Rows), len(c.Means))
	}
	return fmt.Sprintf("%d worse, %d better, %d changed otherwise, %d the same", count[Worse], count[Better], count[Changed], count[Same])
}
