// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"slices"
	"strings"
)

// group is rows that change together if they have a common cause: rows of an experiment and a unit, Floodwall's or all others.
type group struct {
	name, unit string
	own        bool
}

// means returns the geometric means of the groups. A change of the datapath moves all of Floodwall's rows; a disturbance of a round seldom does. So
// the mean shows changes that no single row shows. A cause that also moves the others' mean is no change of Floodwall.
func means(rows []Change) []Change {
	var order []group
	members := make(map[group][]Change)
	for _, r := range rows {
		if coarse(r.Unit) || !positive(r.figures[0]) || !positive(r.figures[1]) {
			continue
		}
		g := group{experiment(r.Name), r.Unit, r.Own}
		if members[g] == nil {
			order = append(order, g)
		}
		members[g] = append(members[g], r)
	}
	all := []Change{}
	for _, g := range order {
		c := newChange(g.name, g.unit, meanRounds(members[g], 0), meanRounds(members[g], 1))
		c.Own, c.Rows = g.own, len(members[g])
		all = append(all, c)
	}
	return all
}

// othersMoved returns the share by which the mean of the others' rows changed in the same direction, for the same experiment and unit. It is 0 if
// that may be chance. The cause of that change may also be the cause of Floodwall's. It is 0 for shares of the yardstick, which is one of the others
// itself: the empty program's shares vary by some percent, as it takes so little time.
func othersMoved(own *Change, means []Change, alpha float64) float64 {
	if own.Unit == yardstick {
		return 0
	}
	for i := range means {
		m := &means[i]
		if !m.Own && m.Name == own.Name && m.Unit == own.Unit && m.Q <= alpha && m.Delta*own.Delta > 0 {
			return math.Abs(m.Delta)
		}
	}
	return 0
}

// experiment returns the part of a result's name that names the experiment and its method.
func experiment(name string) string {
	parts := strings.Split(name, "/")
	if len(parts) > 2 && parts[1] == "one-core" {
		return strings.Join(parts[:2], "/")
	}
	return parts[0]
}

// meanRounds returns the mean of the rows in each round that all rows of a run have.
func meanRounds(rows []Change, run int) (all []float64) {
	rounds := math.MaxInt
	for _, r := range rows {
		rounds = min(rounds, len(r.figures[run]))
	}
	for round := range rounds {
		sum := 0.0
		for _, r := range rows {
			sum += math.Log(r.figures[run][round])
		}
		all = append(all, math.Exp(sum/float64(len(rows))))
	}
	return all
}

func positive(figures []float64) bool {
	return !slices.ContainsFunc(figures, func(v float64) bool { return !(v > 0) })
}
