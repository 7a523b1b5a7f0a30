// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// ratioClaim judges a claim about a ratio. The ratio is a figure of the row one divided by the same figure of the row other, round by round.
func ratioClaim(c report.Claim, one, other *rig.Row, unit string, least, most float64, unsteady func(*rig.Row) bool) report.Claim {
	if times := one.By(other, unit).Positive(); len(times) > 0 {
		c = c.Within(report.WithInterval(times), times, least, most, unsteady(one) || unsteady(other))
	}
	return c
}
