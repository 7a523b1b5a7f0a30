// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
)

// visitOf returns a visit with this number of answers in each of its seconds. Drops start in the second with the number full, counted from 1; 0: no
// drops.
func visitOf(entries, full int, perSecond ...uint64) rig.Reading {
	sum, tables := lab.LoadSummary{Time: time.Duration(len(perSecond)) * time.Second}, []lab.Conntrack{{Entries: 7}}
	var samples []lab.Sample
	drops := uint64(0)
	for i, ok := range perSecond {
		samples = append(samples, lab.Sample{Time: time.Duration(i+1) * time.Second, OK: ok, Rate: float64(ok)})
		if full > 0 && i >= full-1 {
			drops += 7
		}
		tables = append(tables, lab.Conntrack{Entries: 7 + entries, Drops: drops})
		sum.OK += ok
	}
	sum.Rate = float64(sum.OK) / sum.Time.Seconds()
	sum.Errors = map[string]uint64{lab.FailedTimeout: drops}
	return conntrackReading(sum, samples, tables)
}

// wantTable returns the table with these visits of its rows, and its outcome.
func wantTable(visits ...[]rig.Reading) (*rig.Table, *report.Outcome) {
	t := conntrackTable(&rig.Builder{Session: &rig.Session{Options: rig.Options{Rounds: 2, Phase: 5 * time.Second}}})
	for i, rounds := range visits {
		t.Rows[i].Rounds = rounds
	}
	o := &report.Outcome{Name: "conntrack"}
	if visits[2] == nil {
		t.Rows[2].Missing = "nft is not installed"
	}
	t.Publish(o)
	overTime(o, t.Rows)
	return t, o
}

// figuresOf returns figures of all rows.
func figuresOf() [][]rig.Reading {
	return [][]rig.Reading{
		{visitOf(0, 0, 100, 100, 100, 100), visitOf(0, 0, 200, 200, 200, 200)},
		{visitOf(4096, 2, 100, 50, 10, 0), visitOf(4096, 3, 200, 200, 20, 20)},
		{visitOf(0, 0, 90, 90, 90, 90), visitOf(0, 0, 180, 180, 180, 180)},
		{visitOf(0, 0, 99, 99, 99, 99), visitOf(0, 0, 200, 200, 200, 200)},
		{visitOf(0, 0, 97, 97, 97, 97), visitOf(1, 0, 190, 190, 190, 190)},
	}
}

func TestConntrackBars(t *testing.T) {
	_, o := wantTable(figuresOf()...)
	var got []string
	for _, bar := range o.Bars {
		got = append(got, bar.Name+" "+bar.String())
	}
	// When the table is full: 10 in the third and 0 in the fourth second, then 20 in the fourth, compared with 100 and 200 without a firewall.
	want := []string{
		"conntrack/nft/full of no firewall, once full <= 0.50 met",
		"conntrack/floodwall/auto of no firewall >= 0.98 met", "conntrack/floodwall/auto entries in the table <= 0.00 met",
		"conntrack/floodwall/nftables of no firewall >= 0.98 MISSED", "conntrack/floodwall/nftables entries in the table <= 0.00 MISSED",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("bars (-want +got):\n%s", diff)
	}
	if value := fmt.Sprintf("%.4f", o.Bars[0].Value); value != "0.0750" {
		t.Errorf("once full, %s of no firewall, want 0.0750", value)
	}
}

func TestTable(t *testing.T) {
	figures := figuresOf()
	figures[2] = nil
	_, o := wantTable(figures...)
	row := func(i int) string { return strings.Join(o.Tables[0].Rows[i], "|") }
	for i, want := range []string{
		"no firewall|926 req/s|150|100 .. 200|1.000 (1.00 .. 1.00)||████|0.000 ms|0.000 ms|0.000 ms|0|0|0|~",
		"nft: stateful, table full|91.55 req/s, 1.55 s, 2911 time-outs|75|40 .. 110|0.475 (0.40 .. 0.55)|12|█▇▁▁|0.000 ms|0.000 ms|0.000 ms|17|4,096|17|~",
		"nft: the same with notrack|598.53 req/s, as off||||||||||||nft is not installed",
	} {
		if got := row(i); got != want {
			t.Errorf("row %d:\n%s\nwant\n%s", i, got, want)
		}
	}
	seconds := o.Tables[1]
	if got, want := strings.Join(seconds.Rows[1], "|"), "2.0|150|125||150|144"; got != want {
		t.Errorf("the second second: %s, want %s", got, want)
	}
	series := o.Series
	if len(series) != 4 || series[1].Name != "conntrack/nft/full" || series[1].Seconds != 1 || !cmp.Equal(series[1].Values, []float64{150, 125, 15, 10}) {
		t.Errorf("series %+v", series)
	}
	if res := o.Results[2]; res.Note != "nft is not installed" || len(res.Metrics) > 0 {
		t.Errorf("result of what is not installed: %+v", res)
	}
}

// TestRoom checks that the table becomes full early in a phase of any length.
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

// TestClaims judges the article of 2023 by its own figures, and by other figures.
func TestClaims(t *testing.T) {
	for _, tt := range []struct {
		name                string
		none, full, notrack []rig.Reading
		want                string
	}{
		{
			"as the article", []rig.Reading{visitOf(0, 0, 900, 900), visitOf(0, 0, 900, 900)}, []rig.Reading{visitOf(9, 1, 500, 90, 90), visitOf(9, 1, 500, 90, 90)}, []rig.Reading{visitOf(0, 0, 890, 890), visitOf(0, 0, 890, 890)},
			"confirmed, confirmed, confirmed, confirmed",
		},
		{
			"a full table does no harm", []rig.Reading{visitOf(0, 0, 900, 900), visitOf(0, 0, 900, 900)}, []rig.Reading{visitOf(9, 1, 500, 880, 880), visitOf(9, 1, 500, 880, 880)}, []rig.Reading{visitOf(0, 0, 800, 800), visitOf(0, 0, 800, 800)},
			"refuted, refuted, confirmed, refuted",
		},
		{
			"it was never full", []rig.Reading{visitOf(0, 0, 900, 900), visitOf(0, 0, 900, 900)}, []rig.Reading{visitOf(9, 0, 500, 880, 880), visitOf(9, 0, 500, 880, 880)}, nil,
			"not measurable here, not measurable here, refuted, not measurable here",
		},
		{
			"unsteady", []rig.Reading{visitOf(0, 0, 900), visitOf(0, 0, 500)}, []rig.Reading{visitOf(9, 1, 500, 0), visitOf(9, 1, 500, 0)},
			[]rig.Reading{visitOf(0, 0, 900), visitOf(0, 0, 400)}, "confirmed~, confirmed~, confirmed, not measurable here~",
		},
	} {
		got, _ := wantTable(tt.none, tt.full, tt.notrack)
		if got := Verdicts(conntrackClaims(got)); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
