package report

import (
	"strings"
	"testing"
)

// TestClaimsTable prints claims as people read them.
func TestClaimsTable(t *testing.T) {
	r := Report{Experiments: []*Outcome{{Name: "cost", Claims: []Claim{
		OpenClaim("a matters", "1.2 x", "it costs more").Found("1.3 x", true, true), OpenClaim("b does not", "1 x", "it costs the same"),
	}}}}
	var text strings.Builder
	if err := r.WriteTables(&text, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"### cost: what the article says\n", "| a matters | 1.2 x | 1.3 x | confirmed | it costs more | ~ |\n",
		"| b does not | 1 x | not measured | not measurable here | it costs the same |  |\n", "- ~ unsteady",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}
