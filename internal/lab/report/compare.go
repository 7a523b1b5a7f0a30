package report

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// CompareOptions are what counts as a change. The zero value is good.
type CompareOptions struct {
	Alpha float64 // the share of false alarms among what is said to have changed; 0: 0.05
	Delta float64 // the least change of Floodwall's mean, as a share; of all else, rowTimes that; 0: 0.05
}

// ReportComparison is what changed from one run to another.
type ReportComparison struct {
	Old      ComparedRun `json:"old"`
	New      ComparedRun `json:"new"`
	Alpha    float64     `json:"alpha"`
	Delta    float64     `json:"delta"`
	Warnings []string    `json:"warnings"`
	Means    []Change    `json:"means"` // of each experiment, Floodwall's rows and all others
	Rows     []Change    `json:"rows"`
	OnlyOld  []string    `json:"only_old"` // rows that only one of the runs has
	OnlyNew  []string    `json:"only_new"`
}

// ComparedRun is one of the two.
type ComparedRun struct {
	Time    time.Time   `json:"time"`
	Machine lab.Machine `json:"machine"`
}

// Change is a figure in both runs.
type Change struct {
	Name    string        `json:"name"` // of the result, or of the experiment
	Unit    string        `json:"unit"`
	Old     float64       `json:"old"` // median of the rounds; of a mean, the geometric mean of the rows'
	New     float64       `json:"new"`
	Delta   float64       `json:"delta"` // new by old, less 1; 1 where the old is 0 and the new is not
	P       float64       `json:"p"`     // that the rounds differ so much when nothing changed (Mann and Whitney's U test)
	Q       float64       `json:"q"`     // the same, for the number of comparisons (Benjamini and Hochberg)
	Least   float64       `json:"least"` // the least change that counts, as a share
	Rounds  [2]int        `json:"rounds"`
	Rows    int           `json:"rows,omitempty"` // of a mean
	Own     bool          `json:"own"`            // of Floodwall, not of something that it is compared with
	Verdict ChangeVerdict `json:"verdict"`

	figures [2][]float64 // of the rounds
}

// ChangeVerdict is what is said of a change.
type ChangeVerdict string

// Verdicts. What is not of Floodwall, or has no better and worse, has changed at most.
const (
	Same    ChangeVerdict = "same"
	Better  ChangeVerdict = "better"
	Worse   ChangeVerdict = "worse"
	Changed ChangeVerdict = "changed"
)

// LeastRounds is from how many rounds on two runs can differ significantly at all: with three, each order of the six
// figures has a chance of a tenth.
const LeastRounds = 4

// rowTimes is how many times more a row alone must change than the mean of Floodwall's, and the mean of the others: where the kernel finds memory for a
// program and its maps moves a row by up to a seventh, from one run of a build to the next as well.
const rowTimes = 4

// Compare compares two reports.
func Compare(old, new *Report, o CompareOptions) *ReportComparison {
	if o.Alpha == 0 {
		o.Alpha = 0.05
	}
	if o.Delta == 0 {
		o.Delta = 0.05 // runs of a build are up to 2% apart by the yardstick, and a tenth more time is a share of 9% less
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

// pair fills the rows.
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

// resultsByName takes what was measured. A report has a name twice where two tables share a row: the first counts.
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

// Worse lists what got worse: means first.
func (c *ReportComparison) Worse() (worse []Change) {
	for _, change := range slices.Concat(c.Means, c.Rows) {
		if change.Verdict == Worse {
			worse = append(worse, change)
		}
	}
	return worse
}

// machineWarnings says in what the machines differ.
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

// warnYardsticks says when figures are by different yardsticks.
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

// warnRounds says when there is too little to judge by.
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
