package rig

import (
	"github.com/floodwall/floodwall/internal/lab/report"
)

// ranking is the rates of the table's rows.
func (t *RateTable) ranking() report.Ranking {
	ranking := report.Ranking{Title: t.Title + t.cores.suffix(), Unit: "Mpps"}
	if t.least != nil && t.least.Measured() {
		ranking.Limit = t.least.Label
	}
	for _, r := range t.Rows {
		ranking.Add(r.Label, r.Arrived(), 1e6, r.Unsteady())
	}
	return ranking
}
