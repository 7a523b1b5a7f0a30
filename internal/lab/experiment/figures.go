package experiment

import (
	"github.com/floodwall/floodwall/internal/lab/report"
)

// figure is one of each visit.
func (c *conntrackTestCase) figure(of func(*conntrackVisit) float64) (all report.Samples) {
	for _, v := range c.visits {
		all = append(all, of(v))
	}
	return all
}

// ratio is the rate as a share of another case's, round by round.
func (c *conntrackTestCase) ratio(to *conntrackTestCase) (all report.Samples) {
	for i := range min(len(c.visits), len(to.visits)) {
		if base := to.visits[i].Rate; base > 0 {
			all = append(all, c.visits[i].Rate/base)
		}
	}
	return all
}

// overTime is the median of the requests per second in each interval.
func (c *conntrackTestCase) overTime() (all []float64) {
	var rates [][]float64
	for _, v := range c.visits {
		rates = append(rates, v.rates())
	}
	for i := 0; len(rates) > 0; i++ {
		var at report.Samples
		for _, r := range rates {
			if i < len(r) {
				at = append(at, r[i])
			}
		}
		if len(at) == 0 {
			break
		}
		all = append(all, at.Median())
	}
	return all
}

// fullRatio is the rate once the table is full as a share of another case's rate, of the rounds in which it became full.
func (c *conntrackTestCase) fullRatio(to *conntrackTestCase) (all report.Samples) {
	for i := range min(len(c.visits), len(to.visits)) {
		if rate, ok := c.visits[i].fullRate(); ok && to.visits[i].Rate > 0 {
			all = append(all, rate/to.visits[i].Rate)
		}
	}
	return all
}

// fullRates are the requests per second once the table was full.
func (c *conntrackTestCase) fullRates() (all report.Samples) {
	for _, v := range c.visits {
		if rate, ok := v.fullRate(); ok {
			all = append(all, rate)
		}
	}
	return all
}
