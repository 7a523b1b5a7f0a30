package experiment

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/lab/report"
)

// claim is something that the article says, and between which bounds a number of times must lie for it to hold.
type claim struct {
	text, article, rule string
	least, most         float64
	times               func(*builder) evidence
}

// evidence is what a claim is judged by.
type evidence struct {
	times report.Samples // of each round
	here  string         // the figures
	from  []*visit       // what they rest on; none when they were not measured
}

// fewRules is fewer than 5,000, which hardly matter as the article says.
const fewRules = 4_000

// articleClaims are the article's.
var articleClaims = []claim{
	{
		"one ipset is 11 times as fast as a rule each", "8.59 ms against 0.76, 11 x",
		"on the mean over 0 to 50,000 entries, a request takes 5.5 to 22 times as long with a rule each", 5.5, 22, (*builder).timesOfSet,
	},
	{
		"a rule each takes time in proportion to the number of rules", "0.76 ms with none, 8.04 with 25,000, 12.06 with 50,000",
		"50,000 rules add 1.5 to 3 times what 25,000 add to half of the requests", 1.5, 3, (*builder).timesOfDouble,
	},
	{
		"the size of an ipset does not matter", "0.63 ms with none, 1.28 with 50,000",
		"with 50,000 entries, half of the requests come within at most 10% more time than with none", 0, 1.1, (*builder).timesOfFull,
	},
	{
		"fewer than 5,000 rules hardly matter", "0.76 ms with none, 0.98 with 1,000",
		"with 4,000 rules, half of the requests come within at most 1.5 times the time without", 0, 1.5, (*builder).timesOfFew,
	},
}

// claims judges what the article says.
func (b *builder) claims() (all []report.Claim) {
	for _, c := range articleClaims {
		judged := report.Claim{Text: c.text, Article: c.article, Rule: c.rule, Verdict: report.NotMeasurable, Here: "not measured"}
		if t := c.times(b); len(t.from) > 0 {
			judged = judged.Within(t.here, t.times, c.least, c.most, slices.ContainsFunc(t.from, (*visit).unsteady))
		}
		all = append(all, judged)
	}
	return all
}

// at is a case with so many entries; nil when that was not measured.
func (b *builder) at(name string, entries int) *visit {
	for i, p := range b.points {
		if v := b.named(name).visits[i]; p.entries == entries && len(v.rounds) > 0 {
			return v
		}
	}
	return nil
}

// half is the time within which half of the requests came, in nanoseconds, in each round.
func (v *visit) half() report.Samples { return v.figure(wholeP50) }

// ms writes the middle of such times.
func ms(times report.Samples) string { return millisText(times.Median()) }

// timesOfSet compares the means over all numbers of entries that the article has.
func (b *builder) timesOfSet() (t evidence) {
	for _, v := range []*visit{b.at(rulesBlocker, 0), b.at(rulesBlocker, publishedMost), b.at(ipsetBlocker, 0), b.at(ipsetBlocker, publishedMost)} {
		if v == nil {
			return evidence{}
		}
		t.from = append(t.from, v)
	}
	rules, set := b.meansOf(rulesBlocker), b.meansOf(ipsetBlocker)
	t.times = rules.By(set)
	t.here = fmt.Sprintf("%s ms against %s, %s", ms(rules), ms(set), report.WithInterval(t.times))
	return t
}

// meansOf is, for each round, the mean over the numbers of entries from none to the article's most, of which not all are measured:
// between two that are, it is taken to change evenly.
func (b *builder) meansOf(name string) (means report.Samples) {
	for round := 0; ; round++ {
		area, last, none := 0.0, [2]float64{}, true
		for i, p := range b.points {
			v := b.named(name).visits[i]
			switch {
			case len(v.rounds) == 0 || p.entries > publishedMost:
				continue
			case len(v.rounds) <= round:
				return means
			}
			here := [2]float64{float64(p.entries), float64(wholeMean(&v.rounds[round]))}
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

// timesOfDouble compares what the most rules add with what half of them do.
func (b *builder) timesOfDouble() (t evidence) {
	none, some, all := b.at(rulesBlocker, 0), b.at(rulesBlocker, publishedMost/2), b.at(rulesBlocker, publishedMost)
	if none == nil || some == nil || all == nil || !(some.half().Median() > none.half().Median()) {
		return t
	}
	return evidence{
		times: all.half().Minus(none.half()).By(some.half().Minus(none.half())), from: []*visit{none, some, all},
		here: fmt.Sprintf("%s ms with none, %s with 25,000, %s with 50,000", ms(none.half()), ms(some.half()), ms(all.half())),
	}
}

// timesOfFull compares the largest ipset of the article with an empty one.
func (b *builder) timesOfFull() evidence { return b.timesMore(ipsetBlocker, publishedMost) }

// timesOfFew compares a few rules with none.
func (b *builder) timesOfFew() evidence { return b.timesMore(rulesBlocker, fewRules) }

// timesMore compares so many entries with none.
func (b *builder) timesMore(name string, entries int) (t evidence) {
	none, some := b.at(name, 0), b.at(name, entries)
	if none == nil || some == nil || none == some {
		return t
	}
	times := some.half().By(none.half())
	return evidence{
		times: times, from: []*visit{none, some},
		here: fmt.Sprintf("%s ms with none, %s with %s, %s",
			ms(none.half()), ms(some.half()), report.CountText(entries), report.WithInterval(times)),
	}
}
