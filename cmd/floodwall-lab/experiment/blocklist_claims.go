package experiment

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// fewRules is a number of rules below 5,000. The article says that such a number hardly matters.
const fewRules = 4_000

// claims judges the article's claims.
func (b *blocklist) claims() []report.Claim {
	// judge adds a claim that a ratio of times is between least and most. The function ratio returns the ratio, the times as text, and their rows. It
	// returns no rows if these were not measured.
	judge := func(text, article, rule string, least, most float64, ratio func() (report.Samples, string, []*rig.Row)) report.Claim {
		c := report.OpenClaim(text, article, rule)
		if times, here, from := ratio(); len(from) > 0 {
			c = c.Within(here, times, least, most, slices.ContainsFunc(from, rig.Unsteady(half).On))
		}
		return c
	}
	return []report.Claim{
		judge("one ipset is 11 times as fast as a rule each", "8.59 ms against 0.76, 11 x",
			"on the mean over 0 to 50,000 entries, a request takes 5.5 to 22 times as long with a rule each", 5.5, 22, b.timesOfSet),
		judge("a rule each takes time in proportion to the number of rules", "0.76 ms with none, 8.04 with 25,000, 12.06 with 50,000",
			"50,000 rules add 1.5 to 3 times what 25,000 add to half of the requests", 1.5, 3, b.timesOfDouble),
		judge("the size of an ipset does not matter", "0.63 ms with none, 1.28 with 50,000",
			"with 50,000 entries, half of the requests come within at most 10% more time than with none", 0, 1.1, b.timesMore(ipsetBlocker, publishedMost)),
		judge("fewer than 5,000 rules hardly matter", "0.76 ms with none, 0.98 with 1,000",
			"with 4,000 rules, half of the requests come within at most 1.5 times the time without", 0, 1.5, b.timesMore(rulesBlocker, fewRules)),
	}
}

// at returns the row of a blocker for a number of entries, or nil if it was not measured.
func (b *blocklist) at(name string, entries int) *rig.Row {
	for _, p := range b.points {
		if r := p.row(name); p.entries == entries && len(r.Rounds) > 0 {
			return r
		}
	}
	return nil
}

// ms returns the median of times in milliseconds as text.
func ms(times report.Samples) string { return millisText(times.Median()) }

// timesOfSet returns the mean time with rules divided by the mean time with ipset. Both means are over all numbers of entries in the article.
func (b *blocklist) timesOfSet() (report.Samples, string, []*rig.Row) {
	from := []*rig.Row{b.at(rulesBlocker, 0), b.at(rulesBlocker, publishedMost), b.at(ipsetBlocker, 0), b.at(ipsetBlocker, publishedMost)}
	if slices.Contains(from, nil) {
		return nil, "", nil
	}
	rules, set := b.meansOf(rulesBlocker), b.meansOf(ipsetBlocker)
	times := rules.By(set)
	return times, fmt.Sprintf("%s ms against %s, %s", ms(rules), ms(set), report.WithInterval(times)), from
}

// meansOf returns a blocker's mean time for each round. The mean is over the numbers of entries from 0 to the article's maximum. Not all of these
// numbers are measured. Between two measured numbers, the time is interpolated linearly.
func (b *blocklist) meansOf(name string) (means report.Samples) {
	for round := 0; ; round++ {
		area, last, none := 0.0, [2]float64{}, true
		for _, p := range b.points {
			r := p.row(name)
			switch {
			case len(r.Rounds) == 0 || p.entries > publishedMost:
				continue
			case len(r.Rounds) <= round:
				return means
			}
			here := [2]float64{float64(p.entries), r.Rounds[round]["mean-ns"]}
			if !none {
				area += (here[0] - last[0]) * (here[1] + last[1]) / 2
			}
			last, none = here, false
		}
		if none {
			return means
		}
		means = append(means, area/publishedMost)
	}
}

// timesOfDouble returns the time that the maximum number of rules adds, divided by the time that half of these rules add.
func (b *blocklist) timesOfDouble() (report.Samples, string, []*rig.Row) {
	from := []*rig.Row{b.at(rulesBlocker, 0), b.at(rulesBlocker, publishedMost/2), b.at(rulesBlocker, publishedMost)}
	if slices.Contains(from, nil) {
		return nil, "", nil
	}
	none, some, all := from[0].Figure(half), from[1].Figure(half), from[2].Figure(half)
	if !(some.Median() > none.Median()) {
		return nil, "", nil
	}
	return all.Minus(none).By(some.Minus(none)), fmt.Sprintf("%s ms with none, %s with 25,000, %s with 50,000", ms(none), ms(some), ms(all)), from
}

// timesMore returns the time with a number of entries divided by the time without entries.
func (b *blocklist) timesMore(name string, entries int) func() (report.Samples, string, []*rig.Row) {
	return func() (report.Samples, string, []*rig.Row) {
		from := []*rig.Row{b.at(name, 0), b.at(name, entries)}
		if slices.Contains(from, nil) {
			return nil, "", nil
		}
		none, some := from[0].Figure(half), from[1].Figure(half)
		times := some.By(none)
		return times, fmt.Sprintf("%s ms with none, %s with %s, %s", ms(none), ms(some), report.CountText(entries), report.WithInterval(times)), from
	}
}
