// SPDX-License-Identifier: Apache-2.0

// This file writes a report of the bench as one HTML page without dependencies: no network, no script, no font. It is for desktops and phones, light
// and dark.

package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

//go:embed page.html
var pageText string

//go:embed page.css
var style string

// page is parsed when the first report is written, as no other command needs it.
var page = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"paragraphs": Paragraphs,
		"cells":      cells,
		"row":        rowKind,
		"untitled":   untitled,
		"figures":    (*Table).Figures,
		"figure":     pageFigure,
		"compare":    compare,
		"less":       func(a, b float64) float64 { return a - b },
		"verdict":    verdictClass,
		"seconds":    seconds,
		"sorted":     func(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) },
		"wide":       func(c chart) (template.HTML, error) { return c.svg(wide) },
		"narrow":     func(c chart) (template.HTML, error) { return c.svg(narrow) },
	}).Parse(pageText))
})

// view is the content of the page.
type view struct {
	*Report
	Style       template.CSS
	Missed      []*Bar
	Measured    int // number of bars
	Claims      []Claim
	Verdicts    []tally
	Headlines   []Comparison
	Failed      []*Outcome
	Unsteady    int // number of rows
	Experiments []pageExperiment
}

// tally is the number of claims with a verdict.
type tally struct {
	Verdict Verdict
	Count   int
}

// pageExperiment is the part of the page for an experiment.
type pageExperiment struct {
	*Outcome
	Charts []chart
	Ranked []ranking
}

// WritePage writes the page.
func WritePage(w io.Writer, r *Report) error {
	v := view{
		Report: r, Style: template.CSS(style), Missed: r.Missed(), Measured: r.Bars(), Claims: r.Claims(),
		Headlines: r.Headlines(), Failed: r.Failed(), Unsteady: r.Unsteady(),
	}
	for _, verdict := range []Verdict{Confirmed, Refuted, NotMeasurable} {
		count := 0
		for _, c := range v.Claims {
			count += Choice(c.Verdict == verdict, 1, 0)
		}
		v.Verdicts = append(v.Verdicts, tally{verdict, count})
	}
	for _, o := range r.Experiments {
		v.Experiments = append(v.Experiments, newExperiment(o))
	}
	if err := page().Execute(w, v); err != nil {
		return fmt.Errorf("report page: %w", err)
	}
	return nil
}

func newExperiment(o *Outcome) pageExperiment {
	e := pageExperiment{Outcome: o, Charts: charts(o)}
	for _, r := range o.Ranked {
		if len(r.Rows) > 0 {
			e.Ranked = append(e.Ranked, newRanking(r))
		}
	}
	return e
}

// verdictClass returns the CSS class of a verdict.
func verdictClass(v Verdict) string { return strings.Fields(string(v))[0] }

// untitled returns a title without the name of its experiment.
func untitled(title string) string {
	if _, rest, ok := strings.Cut(title, ": "); ok {
		return rest
	}
	return title
}

// seconds returns a time as text for people.
func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}

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
