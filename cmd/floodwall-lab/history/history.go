// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/internal/os/safefile"
)

// Kind is the kind of a line's counts.
type Kind string

// The kinds.
const (
	Measured Kind = "measured" // instructions of packets, counted by the interpreter
	Allowed  Kind = "allowed"  // the commit's bounds: at most 2% above the counts when they were written, or more where that is said
)

// Line is the cost of a commit.
type Line struct {
	Commit       string             `json:"commit"` // its full name
	Date         time.Time          `json:"date"`   // of the commit
	Kernel       string             `json:"kernel,omitempty"`
	Kind         Kind               `json:"kind"`
	Instructions map[string]int     `json:"instructions"`           // by the kind of packet
	OfYardstick  map[string]float64 `json:"of-yardstick,omitempty"` // by the row of `bench program`: the yardstick's time divided by the program's
}

// Read reads a history. A missing file is an empty history.
func Read(path string) (lines []Line, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	for n, text := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		var l Line
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&l); err != nil {
			return nil, fmt.Errorf("history %s:%d: want an object with commit, date, kind and instructions: %w", path, n+1, err)
		}
		if slices.ContainsFunc(lines, func(o Line) bool { return o.Commit == l.Commit && o.Kind == l.Kind }) {
			return nil, fmt.Errorf("history %s:%d: commit %s has a line of kind %s already: remove one of them", path, n+1, l.Commit, l.Kind)
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// Append adds a line in the order of the dates, unless the commit already has a line of the same kind. The result added reports whether it did.
func Append(path string, l Line) (added bool, err error) {
	lines, err := Read(path)
	if err != nil {
		return false, err
	}
	if Has(lines, l.Commit, l.Kind) {
		return false, nil
	}
	lines = append(lines, l)
	slices.SortStableFunc(lines, func(a, b Line) int { return a.Date.Compare(b.Date) })
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	for _, l := range lines {
		if err := encoder.Encode(l); err != nil {
			return false, fmt.Errorf("history: %w", err)
		}
	}
	if err := safefile.Replace(path, out.Bytes(), 0o644); err != nil {
		return false, fmt.Errorf("history: %w", err)
	}
	return true, nil
}

// Has reports whether a commit has a line of a kind.
func Has(lines []Line, commit string, kind Kind) bool {
	return slices.ContainsFunc(lines, func(l Line) bool { return l.Commit == commit && l.Kind == kind })
}

// Ratios returns the ratios of Floodwall's rows of `bench program` in a report; nil if the report has none.
func Ratios(r *report.Report) (ratios map[string]float64) {
	for _, e := range r.Experiments {
		if e.Name != "program" {
			continue
		}
		for _, row := range e.Results {
			for _, m := range row.Metrics {
				if m.Unit == "of-yardstick" {
					if ratios == nil {
						ratios = map[string]float64{}
					}
					ratios[row.Name] = m.Value
				}
			}
		}
	}
	return ratios
}

// drawn contains the kinds of packets that the chart shows.
var drawn = []string{"rules=20", "rules=10000/listed", "listed", "limit/over", "rules=20/strict", "ack"}

// Chart draws the instructions of some kinds of packets over the lines.
func Chart(lines []Line) *report.Picture {
	p := &report.Picture{Title: "Instructions that a packet executes, or may", X: "lines of the history", Y: "instructions", LinearX: true}
	for _, kind := range drawn {
		var points [][2]float64
		for i, l := range lines {
			if n, ok := l.Instructions[kind]; ok {
				points = append(points, [2]float64{float64(i + 1), float64(n)})
			}
		}
		if len(points) > 0 {
			p.Line(kind, points)
		}
	}
	return p
}
