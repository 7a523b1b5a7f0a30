// SPDX-License-Identifier: Apache-2.0

// This file has the results of a run of the bench: results, bars, claims, curves and tables. It writes them as text, Markdown and JSON. It measures
// nothing.

package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// Report contains the results of a run, and the machine of the run.
type Report struct {
	Time        time.Time   `json:"time"`
	Version     string      `json:"version,omitempty"` // of Floodwall
	Machine     lab.Machine `json:"machine"`
	Quick       bool        `json:"quick,omitempty"` // short and small: the figures are rough
	Experiments []*Outcome  `json:"experiments"`
	NotRun      []string    `json:"not_run,omitempty"` // names of the experiments that had not started when the run was stopped
}

// Outcome contains the results of one experiment.
type Outcome struct {
	Name    string       `json:"name"`
	Doc     string       `json:"doc"`
	Seconds float64      `json:"seconds"`         // duration
	Error   string       `json:"error,omitempty"` // error that ended it; the results before that are kept
	Results []lab.Result `json:"results"`
	Bars    []*Bar       `json:"bars"`
	Tables  []*Table     `json:"tables"`
	Claims  []Claim      `json:"claims,omitempty"`
	Series  []Series     `json:"series,omitempty"`
	Curves  []Curve      `json:"curves,omitempty"`
	Ranked  []Ranking    `json:"rankings,omitempty"`

	Yardstick string `json:"yardstick,omitempty"` // tag (struct bpf_prog_info) of the program that figures "of-yardstick" refer to
}

// Series is a figure over time, for charts. Series with the same unit are drawn together.
type Series struct {
	Name    string    `json:"name"`  // of the result
	Label   string    `json:"label"` // for people
	Unit    string    `json:"unit"`
	Seconds float64   `json:"seconds"` // between two values, and before the first one
	Values  []float64 `json:"values"`
}

// Missed lists the bars that were not met.
func (r *Report) Missed() (missed []*Bar) {
	for _, e := range r.Experiments {
		for _, b := range e.Bars {
			if !b.Met {
				missed = append(missed, b)
			}
		}
	}
	return missed
}

// Failed lists the experiments that did not reach their end.
func (r *Report) Failed() (failed []*Outcome) {
	for _, e := range r.Experiments {
		if e.Error != "" {
			failed = append(failed, e)
		}
	}
	return failed
}

// Bars returns the number of bars that were measured.
func (r *Report) Bars() (n int) {
	for _, e := range r.Experiments {
		n += len(e.Bars)
	}
	return n
}

// Unsteady returns the number of rows of tables that are marked as unsteady.
func (r *Report) Unsteady() (n int) {
	for _, e := range r.Experiments {
		for _, t := range e.Tables {
			for _, row := range t.Rows {
				n += Choice(strings.HasPrefix(row[len(row)-1], "~"), 1, 0)
			}
		}
	}
	return n
}

// WriteTables writes the machine, the headlines, and all tables, in Markdown or as aligned text.
func (r *Report) WriteTables(w io.Writer, markdown bool) error {
	write := (*Table).WriteText
	if markdown {
		write = (*Table).WriteMarkdown
	}
	if _, err := fmt.Fprintf(w, "%s\n\n", r.describe(markdown)); err != nil {
		return err
	}
	for _, t := range r.allTables() {
		if err := write(t, w); err != nil {
			return err
		}
	}
	return nil
}

// allTables returns the headlines, the tables of all experiments, each with its claims first, and the goals that were missed.
func (r *Report) allTables() (all []*Table) {
	all = append(all, r.shortTable(), r.failedTable())
	for _, e := range r.Experiments {
		all = append(append(all, e.claimsTable()), e.Tables...)
	}
	all = append(all, r.missedTable())
	return slices.DeleteFunc(all, func(t *Table) bool { return t == nil })
}

// describe returns the machine in a few lines.
func (r *Report) describe(markdown bool) string {
	lines := []string{"floodwall " + r.Version + ", " + r.Time.Format("2006-01-02 15:04 UTC"), r.Machine.String()}
	list := func(what string, m map[string]string) {
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(m)) {
			parts = append(parts, k+": "+m[k])
		}
		if len(parts) > 0 {
			lines = append(lines, what+": "+strings.Join(parts, "; "))
		}
	}
	list("mitigations", r.Machine.Mitigations)
	list("tools", r.Machine.Tools)
	if markdown {
		return "- " + strings.Join(lines, "\n- ")
	}
	return strings.Join(lines, "\n")
}

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(r)
}

// WriteBench writes the results as Go benchmark lines.
func (r *Report) WriteBench(w io.Writer) error {
	all := lab.Report{Machine: r.Machine}
	for _, e := range r.Experiments {
		all.Results = append(all.Results, e.Results...)
	}
	return all.WriteBench(w)
}

// Save writes the report to files of a directory: report.json, bench.txt, tables.md and report.html. It makes the directory if needed. The function
// page writes the last file.
func (r *Report) Save(dir string, page func(io.Writer, *Report) error) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("saving the results: %w", err)
	}
	files := map[string]func(io.Writer) error{
		"report.json": r.WriteJSON,
		"bench.txt":   r.WriteBench,
		"tables.md":   func(w io.Writer) error { return r.WriteTables(w, true) },
		"report.html": func(w io.Writer) error { return page(w, r) },
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := WriteFile(filepath.Join(dir, name), files[name]); err != nil {
			return fmt.Errorf("saving the results: %w", err)
		}
	}
	return nil
}

// WriteFile creates a file, and calls write to fill it.
func WriteFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// KeepFinite removes NaN and infinity from an outcome, because JSON has neither. They are medians of figures that were not measured because the
// experiment ended early.
func (o *Outcome) KeepFinite() {
	o.Bars = slices.DeleteFunc(o.Bars, func(b *Bar) bool { return !finite(b.Value) })
	for i := range o.Results {
		r := &o.Results[i]
		r.Metrics = slices.DeleteFunc(r.Metrics, func(m lab.Metric) bool { return !finite(m.Value, m.Spread) })
	}
	for i := range o.Curves {
		c := &o.Curves[i]
		c.Points = slices.DeleteFunc(c.Points, func(p [2]float64) bool { return !finite(p[:]...) })
	}
}

func finite(values ...float64) bool {
	return !slices.ContainsFunc(values, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
}

// Read reads a report from a file that WriteJSON wrote, or from a directory that Save wrote.
func Read(path string) (*Report, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "report.json")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	r := new(Report)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, notReport(path, err)
	}
	if r.Time.IsZero() || len(r.Experiments) == 0 {
		return nil, notReport(path, errors.New("no experiment is in it"))
	}
	return r, nil
}

// notReport returns the error for a file that is no report.
func notReport(path string, err error) error {
	return wording.WithHint(fmt.Errorf("report %s: %w", path, err), "`floodwall-lab bench` says where its results are: name that directory, or the report.json in it")
}
