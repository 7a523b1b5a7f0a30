package experiment

import (
	"time"

	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// chartKind is a figure of a request over the number of entries.
type chartKind struct {
	name, title string
	of          func(*roundTimes) time.Duration
	most        int  // entries
	log         bool // both axes are logarithmic
}

var chartKinds = []chartKind{
	{"mean", "mean of a request, up to 50,000 entries", wholeMean, publishedMost, false},
	{"mean/log", "mean of a request, logarithmic axes", wholeMean, rig.MaxSize, true},
	{"p50/log", "half of the requests, logarithmic axes", wholeP50, rig.MaxSize, true},
	{"p99/log", "99% of the requests, logarithmic axes", wholeP99, rig.MaxSize, true},
}

// curves are the charts, and the distributions of the times in the tables of details.
func (b *builder) curves() (all []report.Curve) {
	add := func(c report.Curve) {
		if len(c.Points) > 0 {
			all = append(all, c)
		}
	}
	for _, chart := range chartKinds {
		for _, c := range b.cases {
			add(report.Curve{
				Name: b.Outcome.Name + "/" + chart.name + "/" + c.name, Chart: chart.title, Label: c.label, X: "entries", Y: "ms",
				LogX: chart.log, LogY: chart.log, Points: b.overEntries(c, chart),
			})
		}
	}
	for _, i := range b.detailed() {
		for _, c := range b.cases {
			add(report.Curve{
				Name: b.resultName(c.name, i) + "/distribution", Chart: "times of requests with " + b.points[i].label, Label: c.label,
				X: "% of the requests", Y: "ms", LogY: true, Points: c.visits[i].shares,
			})
		}
	}
	return all
}

// overEntries is a line of a chart.
func (b *builder) overEntries(c *testCase, chart chartKind) (points [][2]float64) {
	for i, p := range b.points {
		if v := c.visits[i]; len(v.rounds) > 0 && p.entries <= chart.most && (p.entries > 0 || !chart.log) {
			points = append(points, [2]float64{float64(p.entries), v.figure(chart.of).Median() / 1e6})
		}
	}
	return points
}
