// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
)

// Claim is a statement of an article, and whether it holds on this machine.
type Claim struct {
	Text     string  `json:"text"`
	Article  string  `json:"article"` // the article's figure, with the unit
	Here     string  `json:"here"`    // the same figure here, or the reason why there is none
	Verdict  Verdict `json:"verdict"`
	Unsteady bool    `json:"unsteady,omitempty"` // the figures behind it are doubtful
	Rule     string  `json:"rule"`               // it is confirmed if this holds, as in "filter costs up to 25% more than raw"
}

// Verdict is the result of a claim.
type Verdict string

// The verdicts. A claim is not measurable here if something was not measured, for example because a tool is missing, or if the rounds contradict each
// other.
const (
	Confirmed     Verdict = "confirmed"
	Refuted       Verdict = "refuted"
	NotMeasurable Verdict = "not measurable here"
)

// OpenClaim returns a claim without measurements.
func OpenClaim(text, article, rule string) Claim {
	return Claim{Text: text, Article: article, Rule: rule, Here: "not measured", Verdict: NotMeasurable}
}

// Found returns the claim with the result of a certain count: in how many of the rounds it held.
func (c Claim) Found(here string, held, rounds int) Claim {
	c.Here = here
	switch held {
	case rounds:
		c.Verdict = Confirmed
	case 0:
		c.Verdict = Refuted
	default:
		c.Here += fmt.Sprintf("; it held in %d of %d rounds", held, rounds)
	}
	return c
}

// Within returns the claim that a figure lies between two bounds, with the figures of each round. It is confirmed if their ClaimInterval is within
// the bounds, refuted if it is outside, and not measurable if the interval is partly within. Bounds and interval are compared as they are printed: an
// interval that is printed as beginning at a bound is not outside.
func (c Claim) Within(here string, figures Samples, least, most float64, unsteady bool) Claim {
	low, high := figures.ClaimInterval()
	c.Here, c.Unsteady = here, unsteady
	low, high, least, most = printed(low), printed(high), printed(least), printed(most)
	switch {
	case len(figures) < 2:
		c.Here += " in one round"
	case low >= least && high <= most:
		c.Verdict = Confirmed
	case high < least || low > most:
		c.Verdict = Refuted
	}
	return c
}

// printed returns a ratio, rounded to the two decimals that are printed.
func printed(times float64) float64 { return math.Round(100*times) / 100 }

// Told reports whether more rounds would tell little more about a claim that a figure lies between two bounds. That is so if their ClaimInterval is
// narrow compared with the figure, or with the claim's bounds. Told ignores the verdict: rounds that continue until there is a verdict would find one
// too often.
func Told(figures Samples, least, most float64) bool {
	low, high := figures.ClaimInterval()
	narrow := narrowShare * figures.Median()
	if !math.IsInf(most, 1) {
		narrow = max(narrow, (most-least)/3)
	}
	return len(figures) >= fewestTold && high-low <= narrow
}

const (
	narrowShare = 0.10 // of the figure
	fewestTold  = 3    // rounds: two can agree by chance
)

// WithInterval writes a ratio of two figures: the median of the rounds and their ClaimInterval.
func WithInterval(times Samples) string {
	text := TimesText(times.Median())
	if low, high := times.ClaimInterval(); len(times) > 1 {
		text += fmt.Sprintf(" (%.2f to %.2f)", max(low, 0), high)
	}
	return text
}

// Claims lists the claims of all experiments.
func (r *Report) Claims() (claims []Claim) {
	for _, e := range r.Experiments {
		claims = append(claims, e.Claims...)
	}
	return claims
}

// claimsTable returns the claims as a table for people; nil if there are none.
func (o *Outcome) claimsTable() *Table {
	if len(o.Claims) == 0 {
		return nil
	}
	t := &Table{Title: o.Name + ": what the article says", Head: []string{"", "the article says", "article", "here", "verdict"}, Text: true}
	for i, c := range o.Claims {
		t.AddRow(fmt.Sprint(i+1), c.Text, c.Article, c.Here, string(c.Verdict)+Choice(c.Unsteady, " ~", ""))
		t.AddNote("%d holds when %s.", i+1, c.Rule)
	}
	t.AddNote("A verdict is for the %.0f%% interval of the rounds as a whole. Where it is partly within, the claim is not measurable here: more rounds may tell.",
		100*Confidence)
	for _, c := range o.Claims {
		if c.Unsteady {
			t.AddNote("~ unsteady: so are the figures that it rests on.")
		}
	}
	return t
}
