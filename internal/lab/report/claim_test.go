package report

import (
	"strings"
	"testing"
)

// TestClaimsTable prints claims as people read them.
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

// TestClaimsText prints claims in a terminal: each column begins where its head does, and no line is wider than its words need.
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
