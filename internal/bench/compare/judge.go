package compare

import (
	"cmp"
	"math"
	"slices"

	"github.com/floodwall/floodwall/internal/lab"
)

// judge says what changed: by at least so much, and significantly, of all that is compared together.
func judge(all []Change, alpha, delta float64) {
	correct(all)
	for i := range all {
		c := &all[i]
		least := delta
		if coarse(c.Unit) {
			least *= coarseTimes
		}
		if c.Q <= alpha && math.Abs(c.Delta) >= least && c.Old != c.New {
			c.Verdict = c.direction()
		}
	}
}

// direction is the verdict on a change.
func (c *Change) direction() Verdict {
	switch better := float64(lab.Better(c.Unit)) * (c.New - c.Old); {
	case !c.Own || better == 0:
		return Changed
	case better > 0:
		return Better
	}
	return Worse
}

// correct sets Q: of many comparisons some differ by chance. By Benjamini and Hochberg's procedure (Journal of the Royal
// Statistical Society B 57, 1995), of those with Q below a share at most that share is expected to be false, and when
// nothing has changed, that share is the chance of any alarm at all.
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
