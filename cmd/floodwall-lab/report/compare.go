// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// CompareOptions define a change. The zero value has the defaults.
type CompareOptions struct {
	Alpha float64 // the share of false alarms among the reported changes; 0: 0.05
	Delta float64 // the least change of Floodwall's mean, as a share; for all other figures it is multiplied by rowTimes; 0: 0.05
}

// ReportComparison contains the changes from one run to another.
type ReportComparison struct {
	Old      ComparedRun `json:"old"`
	New      ComparedRun `json:"new"`
	Alpha    float64     `json:"alpha"`
	Delta    float64     `json:"delta"`
	Warnings []string    `json:"warnings"`
	Means    []Change    `json:"means"` // of each experiment: of Floodwall's rows, and of all others
	Rows     []Change    `json:"rows"`
	OnlyOld  []string    `json:"only_old"` // rows that are in only one of the runs
	OnlyNew  []string    `json:"only_new"`
}

// ComparedRun is one of the two runs.
type ComparedRun struct {
	Time    time.Time   `json:"time"`
	Machine lab.Machine `json:"machine"`
}

// Change is a figure in both runs.
type Change struct {
	Name    string        `json:"name"` // of the result, or of the experiment
	Unit    string        `json:"unit"`
	Old     float64       `json:"old"` // median of the rounds; of a mean: the geometric mean of the rows' medians
	New     float64       `json:"new"`
	Delta   float64       `json:"delta"` // new divided by old, minus 1; 1 if the old is 0 and the new is not
	P       float64       `json:"p"`     // probability of such a difference between the rounds without a change (Mann and Whitney's U test)
	Q       float64       `json:"q"`     // the same, corrected for the number of comparisons (Benjamini and Hochberg)
	Least   float64       `json:"least"` // the smallest change that counts, as a share
	Rounds  [2]int        `json:"rounds"`
	Rows    int           `json:"rows,omitempty"` // number of rows of a mean
	Own     bool          `json:"own"`            // of Floodwall, not of a program that Floodwall is compared with
	Verdict ChangeVerdict `json:"verdict"`

	figures [2][]float64 // of the rounds
}

// ChangeVerdict is the verdict on a change.
type ChangeVerdict string

// The verdicts. If a figure is not Floodwall's, or has no better and worse, it can only have changed.
const (
	Same    ChangeVerdict = "same"
	Better  ChangeVerdict = "better"
	Worse   ChangeVerdict = "worse"
	Changed ChangeVerdict = "changed"
)

// LeastRounds is the number of rounds from which two runs can differ significantly. With three, each order of the six figures has a probability of a
// tenth.
const LeastRounds = 4

// rowTimes is the factor for the least change of a single row, or of the others' mean, compared with Floodwall's mean. The kernel's placement of a
// program and its maps in memory changes a row by up to a seventh, also between two runs of one build.
const rowTimes = 4

// Compare compares two reports.
func Compare(old, new *Report, o CompareOptions) *ReportComparison {
	if o.Alpha == 0 {
		o.Alpha = 0.05
	}
	if o.Delta == 0 {
		o.Delta = 0.05 // runs of a build differ by up to 2% relative to the yardstick, and a tenth more time is a share lower by 9%
	}
	c := &ReportComparison{
		Old: ComparedRun{old.Time, old.Machine}, New: ComparedRun{new.Time, new.Machine}, Alpha: o.Alpha, Delta: o.Delta,
		Warnings: machineWarnings(old.Machine, new.Machine), Means: []Change{}, Rows: []Change{},
		OnlyOld: []string{}, OnlyNew: []string{},
	}
	c.warnYardsticks(old, new)
	c.pair(old, new)
	c.Means = means(c.Rows)
	c.judge()
	c.warnRounds()
	return c
}

// pair pairs the rows of both reports.
func (c *ReportComparison) pair(old, new *Report) {
	before, after := resultsByName(old), resultsByName(new)
	for _, name := range before.order {
		if after.by[name] == nil {
			c.OnlyOld = append(c.OnlyOld, name)
			continue
		}
		c.Rows = append(c.Rows, changes(before.by[name], after.by[name])...)
	}
	for _, name := range after.order {
		if before.by[name] == nil {
			c.OnlyNew = append(c.OnlyNew, name)
		}
	}
}

// named is results by name, in their order.
type named struct {
	by    map[string]*lab.Result
	order []string
}

// resultsByName returns the results with measurements. A report has a name twice if two tables share a row: the first counts.
func resultsByName(r *Report) named {
	n := named{by: make(map[string]*lab.Result)}
	for _, e := range r.Experiments {
		for i := range e.Results {
			result := &e.Results[i]
			if len(result.Metrics) > 0 && n.by[result.Name] == nil {
				n.by[result.Name] = result
				n.order = append(n.order, result.Name)
			}
		}
	}
	return n
}

// Worse lists the changes for the worse, means first.
func (c *ReportComparison) Worse() (worse []Change) {
	for _, change := range slices.Concat(c.Means, c.Rows) {
		if change.Verdict == Worse {
			worse = append(worse, change)
		}
	}
	return worse
}

// machineWarnings describes the differences between the machines.
func machineWarnings(old, new lab.Machine) []string {
	warnings := []string{}
	add := func(what, a, b string) {
		if a != b {
			warnings = append(warnings, fmt.Sprintf("the runs are of different %s: %s and %s", what, a, b))
		}
	}
	add("machines", fmt.Sprintf("%s, %d cores", old.CPU, old.Cores), fmt.Sprintf("%s, %d cores", new.CPU, new.Cores))
	add("kernels", old.Kernel, new.Kernel)
	for _, name := range slices.Sorted(maps.Keys(old.Mitigations)) {
		if state := new.Mitigations[name]; state != old.Mitigations[name] {
			add("mitigations", name+": "+old.Mitigations[name], name+": "+state)
		}
	}
	return warnings
}

// warnYardsticks warns if the two runs used different yardsticks.
func (c *ReportComparison) warnYardsticks(old, new *Report) {
	before := make(map[string]string)
	for _, e := range old.Experiments {
		before[e.Name] = e.Yardstick
	}
	for _, e := range new.Experiments {
		if was := before[e.Name]; was != "" && e.Yardstick != "" && was != e.Yardstick {
			c.Warnings = append(c.Warnings, fmt.Sprintf("%s: the yardstick is another program (%s and %s): what is by it cannot be compared",
				e.Name, was, e.Yardstick))
		}
	}
}

// warnRounds warns if there are too few rounds for a judgement.
func (c *ReportComparison) warnRounds() {
	few := 0
	for _, r := range c.Rows {
		if min(r.Rounds[0], r.Rounds[1]) < LeastRounds {
			few++
		}
	}
	if few > 0 {
		c.Warnings = append(c.Warnings, fmt.Sprintf(
			"%d of %d figures have fewer than %d rounds, too few for any difference to be significant: run both with --rounds 10",
			few, len(c.Rows), LeastRounds))
	}
	if len(c.Rows) == 0 {
		c.Warnings = append(c.Warnings, "the runs have no row in common")
	}
}
