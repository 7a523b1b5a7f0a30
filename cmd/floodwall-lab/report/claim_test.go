// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"strings"
	"testing"
)

// TestClaimsTable checks the table of claims for people.
func TestClaimsTable(t *testing.T) {
	r := Report{Experiments: []*Outcome{{Name: "cost", Claims: []Claim{
		OpenClaim("a matters", "1.2 x", "it costs more").Within("1.3 x", Samples{1.3, 1.3}, 1.1, 1.4, true),
		OpenClaim("b does not", "1 x", "it costs the same"), OpenClaim("c is lost", "all of it", "some is lost").Found("9 of 10", 1, 2),
	}}}}
	var text strings.Builder
	if err := r.WriteTables(&text, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"### cost: what the article says\n", "| 1 | a matters | 1.2 x | 1.3 x | confirmed ~ |\n",
		"| 2 | b does not | 1 x | not measured | not measurable here |\n", "- 2 holds when it costs the same.\n", "- ~ unsteady",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

// TestClaimsText checks claims in a terminal: each column starts at the same place as its head, and no line is wider than its words need.
func TestClaimsText(t *testing.T) {
	o := Outcome{Name: "cost", Claims: []Claim{
		OpenClaim("raw is only a little better than filter", "1.12 x", "filter costs up to 25% more than raw").
			Within("0.98 x (0.93 to 1.03)", Samples{0.95, 1.01}, 1, 1.25, false),
		OpenClaim("set size does not matter", "1.00 x", "the dearest costs at most 10% more").Within("1.20 x (1.20 to 1.20)", Samples{1.2, 1.2}, 0, 1.1, true),
	}}
	const want = `cost: what the article says

     the article says                         article  here                   verdict
  1  raw is only a little better than filter  1.12 x   0.98 x (0.93 to 1.03)  not measurable here
  2  set size does not matter                 1.00 x   1.20 x (1.20 to 1.20)  refuted ~

  1 holds when filter costs up to 25% more than raw.
  2 holds when the dearest costs at most 10% more.
`
	var text strings.Builder
	if err := o.claimsTable().WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(text.String(), want) {
		t.Errorf("it is\n%s\nwant\n%s", text.String(), want)
	}
}

// TestWithinAsPrinted checks that verdicts agree with the printed interval: an interval that is printed with a start at the bound is not outside.
func TestWithinAsPrinted(t *testing.T) {
	claim := OpenClaim("a is far from the limit", "0.04 x", "it has at most a tenth")
	for _, c := range []struct {
		figures Samples
		want    Verdict
	}{
		{Samples{0.1041, 0.1043, 0.13, 0.15, 0.17, 0.19}, NotMeasurable}, // printed as 0.10 to 0.19
		{Samples{0.1051, 0.11, 0.13, 0.15, 0.17, 0.19}, Refuted},
		{Samples{0.05, 0.06, 0.07, 0.08, 0.09, 0.1041}, Confirmed},
	} {
		if got := claim.Within(WithInterval(c.figures), c.figures, 0, 0.1, false); got.Verdict != c.want {
			t.Errorf("%s: %s, want %s", got.Here, got.Verdict, c.want)
		}
	}
}

// TestTold checks that more rounds are needed while the interval is wide, with any verdict, and no more once it is narrow.
func TestTold(t *testing.T) {
	for _, c := range []struct {
		figures     Samples
		least, most float64
		want        bool
	}{
		{Samples{1.1}, 1, 1.25, false},
		{Samples{1.1, 1.1}, 1, 1.25, false}, // they may agree by chance
		{Samples{1.1, 1.11, 1.12}, 1, 1.25, true},
		{Samples{1.1, 1.3, 1.5}, 1, 1.25, false},
		{Samples{2, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6}, 1, 4, true}, // narrow compared with the claim's bounds
		{Samples{8, 10, 12, 14}, 7.3, math.Inf(1), false},
		{Samples{1.24, 1.25, 1.26, 1.25, 1.24, 1.26}, 1, 1.25, true}, // more rounds cannot decide it
		{Samples{1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 9}, 1, 1.25, true},
	} {
		if got := Told(c.figures, c.least, c.most); got != c.want {
			t.Errorf("%v within %v and %v: %v, want %v", c.figures, c.least, c.most, got, c.want)
		}
	}
}
