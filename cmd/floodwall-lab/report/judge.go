// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"math"
	"slices"

	"github.com/floodwall/floodwall/internal/lab"
)

// judge finds the changes: they must be significant, and at least as large as Delta.
func (c *ReportComparison) judge() {
	correct(c.Means)
	correct(c.Rows)
	for i := range c.Means {
		if m := &c.Means[i]; m.Own {
			m.Least = max(c.Delta, othersMoved(m, c.Means, c.Alpha))
		} else {
			m.Least = rowTimes * c.Delta
		}
	}
	for i := range c.Rows {
		c.Rows[i].Least = rowTimes * c.Delta
	}
	judge(c.Means, c.Alpha)
	judge(c.Rows, c.Alpha)
}

// judge sets the verdicts of changes that are compared together, and their Q and Least.
func judge(all []Change, alpha float64) {
	for i := range all {
		c := &all[i]
		if coarse(c.Unit) {
			c.Least *= coarseTimes
		}
		if c.Q <= alpha && math.Abs(c.Delta) >= c.Least && c.Old != c.New {
			c.Verdict = c.direction()
		}
	}
}

// direction returns the verdict on a change.
func (c *Change) direction() ChangeVerdict {
	switch better := float64(lab.Better(c.Unit)) * (c.New - c.Old); {
	case !c.Own || better == 0:
		return Changed
	case better > 0:
		return Better
	}
	return Worse
}

// correct sets Q. Of many comparisons some differ by chance. By Benjamini and Hochberg's procedure (Journal of the Royal Statistical Society B 57,
// 1995), among the changes with Q below a share, at most that share is expected to be false. If nothing has changed, that share is also the highest
// probability of any alarm. Means and rows are corrected separately, so for both together it is twice as much. Both statements hold for independent
// rounds. The rounds of one run are not quite independent, as a disturbance that lasts for the whole run is in all of them. The least change makes up
// for that: most comparisons of one build stay far below it, so that alarms are rarer than that share.
func correct(all []Change) {
	byP := make([]*Change, len(all))
	for i := range all {
		byP[i] = &all[i]
	}
	slices.SortFunc(byP, func(a, b *Change) int { return cmp.Compare(a.P, b.P) })
	least := 1.0
	for i, c := range slices.Backward(byP) {
		least = min(least, c.P*float64(len(all))/float64(i+1))
		c.Q = least
	}
}
