package bench

// ranking is the rates of the table's rows.
func (t *rateTable) ranking() Ranking {
	ranking := Ranking{Title: t.title + t.cores.suffix(), Unit: "Mpps"}
	if t.empty != nil && t.empty.measured() {
		ranking.Limit = t.empty.label
	}
	for _, r := range t.rows {
		ranking.add(r.label, r.rounds, 1e6, r.unsteady())
	}
	return ranking
}
