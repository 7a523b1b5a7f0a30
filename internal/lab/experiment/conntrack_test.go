package experiment

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// visitOf is a visit with these answers in each of its seconds, and drops in the seconds that begin with full.
func visitOf(entries, full int, perSecond ...uint64) *conntrackVisit {
	v := &conntrackVisit{entries: entries}
	for i, ok := range perSecond {
		m := moment{Sample: lab.Sample{Time: time.Duration(i+1) * time.Second, OK: ok, Rate: float64(ok)}}
		if full > 0 && i >= full-1 {
			m.drops = 7
			v.drops += 7
		}
		v.moments = append(v.moments, m)
		v.OK += ok
	}
	v.Time = time.Duration(len(perSecond)) * time.Second
	v.Rate = float64(v.OK) / v.Time.Seconds()
	v.Errors = map[string]uint64{lab.FailedTimeout: v.drops}
	return v
}

func wantTable() *conntrackBuilder {
	b := &conntrackBuilder{Builder: rig.Builder{Session: &rig.Session{
		Options: rig.Options{Rounds: 2, Phase: 5 * time.Second}, Outcome: &report.Outcome{Name: "conntrack"},
	}}}
	b.cases = conntrackTestCases()
	for i, visits := range [][]*conntrackVisit{
		{visitOf(0, 0, 100, 100, 100, 100), visitOf(0, 0, 200, 200, 200, 200)},
		{visitOf(4096, 2, 100, 50, 10, 0), visitOf(4096, 3, 200, 200, 20, 20)},
		{visitOf(0, 0, 90, 90, 90, 90), visitOf(0, 0, 180, 180, 180, 180)},
		{visitOf(0, 0, 99, 99, 99, 99), visitOf(0, 0, 200, 200, 200, 200)},
		{visitOf(0, 0, 97, 97, 97, 97), visitOf(1, 0, 190, 190, 190, 190)},
	} {
		b.cases[i].visits = visits
	}
	return b
}

func TestConntrackBars(t *testing.T) {
	b := wantTable()
	b.publish()
	var got []string
	for _, bar := range b.Outcome.Bars {
		got = append(got, bar.Name+" "+bar.String())
	}
	// Once full: 10 and 0 of the third and fourth second, then 20 of the fourth, over 100 and 200 without firewall.
	want := []string{
		"conntrack/nft/full of no firewall, once full <= 0.50 met",
		"conntrack/floodwall/auto of no firewall >= 0.98 met", "conntrack/floodwall/auto entries in the table <= 0.00 met",
		"conntrack/floodwall/nftables of no firewall >= 0.98 MISSED", "conntrack/floodwall/nftables entries in the table <= 0.00 MISSED",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("bars (-want +got):\n%s", diff)
	}
	if value := b.Outcome.Bars[0].Value; value != 12.5/150 {
		t.Errorf("once full, %v of no firewall, want %v", value, 12.5/150)
	}
}

func TestTable(t *testing.T) {
	b := wantTable()
	b.cases[2].visits, b.cases[2].missing = nil, "nft is not installed"
	b.publish()
	row := func(i int) string { return strings.Join(b.Outcome.Tables[0].Rows[i], "|") }
	for i, want := range []string{
		"no firewall|926 req/s|150|100 .. 200|1.000 (1.00 .. 1.00)|||████|0.000 ms|0.000 ms|0.000 ms|0|0|0|~",
		"nft: stateful, table full|91.55 req/s, 1.55 s, 2911 time-outs|75|40 .. 110|0.475 (0.40 .. 0.55)|<= 0.50 met|12|█▇▁▁|0.000 ms|0.000 ms|0.000 ms|17|4,096|17|~",
		"nft: the same with notrack|598.53 req/s, as off|||||||||||||nft is not installed",
	} {
		if got := row(i); got != want {
			t.Errorf("row %d:\n%s\nwant\n%s", i, got, want)
		}
	}
	seconds := b.Outcome.Tables[1]
	if got, want := strings.Join(seconds.Rows[1], "|"), "2.0|150|125||150|144"; got != want {
		t.Errorf("the second second: %s, want %s", got, want)
	}
	series := b.Outcome.Series
	if len(series) != 4 || series[1].Name != "conntrack/nft/full" || series[1].Seconds != 1 || !cmp.Equal(series[1].Values, []float64{150, 125, 15, 10}) {
		t.Errorf("series %+v", series)
	}
	if res := b.Outcome.Results[2]; res.Note != "nft is not installed" || len(res.Metrics) > 0 {
		t.Errorf("result of what is not installed: %+v", res)
	}
}

// TestRoom checks that the table gets full early in a phase of any length.
func TestRoom(t *testing.T) {
	for phase, want := range map[time.Duration]int{
		5 * time.Second: 4096, 10 * time.Second: 8192, time.Minute: 8192, 300 * time.Millisecond: 245,
	} {
		s := &rig.Session{Options: rig.Options{Phase: phase}}
		if got := room(s); got != want {
			t.Errorf("%v: room for %d, want %d", phase, got, want)
		}
	}
}

// TestClaims judges the article of 2023 by figures that are as its own, and by others.
func TestClaims(t *testing.T) {
	for _, tt := range []struct {
		name                string
		none, full, notrack []*conntrackVisit
		want                string
	}{
		{
			"as the article", []*conntrackVisit{visitOf(0, 0, 900, 900), visitOf(0, 0, 900, 900)}, []*conntrackVisit{visitOf(9, 1, 500, 90, 90), visitOf(9, 1, 500, 90, 90)}, []*conntrackVisit{visitOf(0, 0, 890, 890), visitOf(0, 0, 890, 890)},
			"confirmed, confirmed, confirmed, confirmed",
		},
		{
			"a full table does no harm", []*conntrackVisit{visitOf(0, 0, 900, 900), visitOf(0, 0, 900, 900)}, []*conntrackVisit{visitOf(9, 1, 500, 880, 880), visitOf(9, 1, 500, 880, 880)}, []*conntrackVisit{visitOf(0, 0, 800, 800), visitOf(0, 0, 800, 800)},
			"refuted, refuted, confirmed, refuted",
		},
		{
			"it was never full", []*conntrackVisit{visitOf(0, 0, 900, 900), visitOf(0, 0, 900, 900)}, []*conntrackVisit{visitOf(9, 0, 500, 880, 880), visitOf(9, 0, 500, 880, 880)}, nil,
			"not measurable here, not measurable here, refuted, not measurable here",
		},
		{
			"unsteady", []*conntrackVisit{visitOf(0, 0, 900), visitOf(0, 0, 500)}, []*conntrackVisit{visitOf(9, 1, 500, 0), visitOf(9, 1, 500, 0)},
			[]*conntrackVisit{visitOf(0, 0, 900), visitOf(0, 0, 400)}, "confirmed~, confirmed~, confirmed, not measurable here~",
		},
	} {
		s := &rig.Session{Options: rig.Options{Phase: time.Second}, Outcome: &report.Outcome{Name: "conntrack"}}
		b := &conntrackBuilder{Builder: rig.Builder{Session: s}, cases: conntrackTestCases()}
		b.named("no-firewall").visits, b.named("nft/full").visits, b.named("nft/notrack").visits = tt.none, tt.full, tt.notrack
		if got := Verdicts(b.claims()); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
