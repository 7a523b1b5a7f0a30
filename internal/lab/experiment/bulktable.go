package experiment

import (
	"fmt"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// notes say what is measured.
func (b *bulkBuilder) notes() []string {
	return []string{
		fmt.Sprintf("One connection that stands, %d MB each way, no flood. CPU %d has the client and its receive thread, CPU %d the",
			bulkBytes(b.Session)>>20, rig.SourceCPU, rig.ReceiverCPU),
		"server and all others. Bytes to the server pass XDP, frame by frame; of those to the client, the acknowledgements do.",
		"Able: bytes per second of the time of the CPU that has most to do, which others on the machine hardly lengthen.",
		"The bar is for the share of an empty program, of what was moved and of what it is able to: for any program veth copies",
		"frames, and does not for none. Ends compute checksums and segment in software, as for XDP they have to, in all rows.",
		fmt.Sprintf("Medians of %d rounds, in which the rows take turns; shares are of the same round.", b.Rounds),
	}
}

// publish adds the tables, the results and the bars to the outcome.
func (b *bulkBuilder) publish() {
	for way := range bulkWays {
		t := &report.Table{
			Title: "synproxy: bulk transfer " + way.label() + ", MB/s",
			Head:  []string{"", "moved", "of nothing", "of XDP_PASS", "bar", "able", "of XDP_PASS", "bar", ""},
			Notes: b.notes(),
		}
		for _, c := range b.rows {
			if b.Wants(c.row(way)) {
				b.row(t, c, way)
			}
		}
		b.Outcome.Tables = append(b.Outcome.Tables, t)
	}
}

// row adds a way of a row to its table, the results and the bars.
func (b *bulkBuilder) row(t *report.Table, c *bulkCase, way bulkWay) {
	f := &c.ways[way]
	r := lab.Result{Name: b.Outcome.Name + "/" + c.row(way), Runs: len(f.rate), Note: c.missing}
	cells := make([]string, 8)
	cells[0] = c.label
	if len(f.rate) > 0 {
		rate := func(f *bulkFigures) report.Samples { return f.rate }
		able := func(f *bulkFigures) report.Samples { return f.able }
		cells[1] = megabytes(f.rate, &r, "MB/s")
		cells[2], _ = b.share(c, bulkOpen, way, rate, &r, "of-open")
		cells[3], cells[4] = b.share(c, bulkPass, way, rate, &r, "of-xdp-pass")
		cells[5] = megabytes(f.able, &r, "able-MB/s")
		cells[6], cells[7] = b.share(c, bulkPass, way, able, &r, "able-of-xdp-pass")
	}
	if f.rate.Unsteady() {
		r.Note = "~"
		t.AddNote("~ unsteady: the rounds differ by more than %.0f%%.", 100*report.UnsteadySpread)
	}
	b.Outcome.Results = append(b.Outcome.Results, r)
	t.AddRow(append(cells, r.Note)...)
}

// megabytes is the median of bytes per second as text, which it adds to the result.
func megabytes(s report.Samples, r *lab.Result, unit string) string {
	mega := s.Each(func(v float64) float64 { return v / 1e6 })
	r.Metrics = append(r.Metrics, mega.Metric(unit))
	return fmt.Sprintf("%.0f", mega.Median())
}

// share is a row's figure by that of a row of another kind, with the server at the same place, and the bar for it as text.
// It adds them to the result and the outcome. Both are empty when it is that row or it was not measured.
func (b *bulkBuilder) share(
	c *bulkCase, kind string, way bulkWay, of func(*bulkFigures) report.Samples, r *lab.Result, unit string,
) (share, bar string) {
	other := b.find(kind, c.behind)
	if other == nil || other == c {
		return "", ""
	}
	by := of(&c.ways[way]).By(of(&other.ways[way]))
	if len(by) == 0 {
		return "", ""
	}
	r.Metrics = append(r.Metrics, by.Metric(unit))
	if c.bar > 0 && kind == bulkPass {
		judged := report.AtLeast(r.Name+" "+unit, by.Median(), c.bar)
		b.Outcome.Bars = append(b.Outcome.Bars, judged)
		bar = judged.String()
	}
	return fmt.Sprintf("%.3f", by.Median()), bar
}

// find returns the row of a kind with the server at a place, nil when there is none.
func (b *bulkBuilder) find(kind string, behind bool) *bulkCase {
	for _, c := range b.rows {
		if c.kind == kind && c.behind == behind {
			return c
		}
	}
	return nil
}
