package bench

import (
	"strings"
	"testing"
	"time"
)

func verdicts(claims []Claim) string {
	var all []string
	for _, c := range claims {
		all = append(all, string(c.Verdict)+choice(c.Unsteady, "~", ""))
	}
	return strings.Join(all, ", ")
}

// TestWebClaims judges the article of 2023 by figures that are as its own, and by others.
func TestWebClaims(t *testing.T) {
	for _, tt := range []struct {
		name                string
		none, full, notrack []*visit
		want                string
	}{
		{
			"as the article", []*visit{visitOf(0, 0, 900, 900)}, []*visit{visitOf(9, 1, 500, 90, 90)}, []*visit{visitOf(0, 0, 890, 890)},
			"confirmed, confirmed, confirmed, confirmed",
		},
		{
			"a full table does no harm", []*visit{visitOf(0, 0, 900, 900)}, []*visit{visitOf(9, 1, 500, 880, 880)}, []*visit{visitOf(0, 0, 800, 800)},
			"refuted, refuted, confirmed, refuted",
		},
		{
			"it was never full", []*visit{visitOf(0, 0, 900, 900)}, []*visit{visitOf(9, 0, 500, 880, 880)}, nil,
			"not measurable here, not measurable here, refuted, not measurable here",
		},
		{
			"unsteady", []*visit{visitOf(0, 0, 900), visitOf(0, 0, 500)}, []*visit{visitOf(9, 1, 500, 0), visitOf(9, 1, 500, 0)},
			[]*visit{visitOf(0, 0, 900), visitOf(0, 0, 400)}, "confirmed~, confirmed~, confirmed, refuted~",
		},
	} {
		b := &webBuilder{builder: builder{session: &session{Options: Options{Phase: time.Second}, outcome: &Outcome{Name: "conntrack"}}}, cases: webCases()}
		b.named("no-firewall").visits, b.named("nft/full").visits, b.named("nft/notrack").visits = tt.none, tt.full, tt.notrack
		if got := verdicts(b.claims()); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestSynClaims judges the talk likewise.
func TestSynClaims(t *testing.T) {
	const all = "confirmed, confirmed, confirmed, confirmed, confirmed"
	talk := func() (syn, ack map[string]series) {
		return map[string]series{synTX: {10.8e6}, synproxyAt: {0.406e6}, "floodwall/host": {2.96e6}},
			map[string]series{synDrop: {24.5e6}, synproxyAt: {0.9e6}, "floodwall/host": {5.6e6}}
	}
	syn, ack := talk()
	if got := verdicts(synTables(syn, ack, nil).claims()); got != all {
		t.Errorf("the talk's own figures: %s", got)
	}
	syn["floodwall/host"], ack[synproxyAt], ack[synDrop] = series{2e6}, series{5e6}, nil
	if got, want := verdicts(synTables(syn, ack, nil).claims()), "refuted, refuted, confirmed, refuted, not measurable here"; got != want {
		t.Errorf("other figures: %s, want %s", got, want)
	}
	syn[synTX] = series{4e6, 8e6}
	if got, want := verdicts(synTables(syn, ack, nil).claims()[2:3]), "confirmed~"; got != want {
		t.Errorf("an unsteady limit: %s, want %s", got, want)
	}
}

// TestClaimsTable prints claims as people read them.
func TestClaimsTable(t *testing.T) {
	r := Report{Experiments: []*Outcome{{Name: "cost", Claims: []Claim{
		openClaim("a matters", "1.2 x", "it costs more").found("1.3 x", true, true), openClaim("b does not", "1 x", "it costs the same"),
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
