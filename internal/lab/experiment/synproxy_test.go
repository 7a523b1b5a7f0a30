package experiment

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// synproxyVisitOf is a visit in which so many of 10,000 connections were completed, with this connect time of the slowest
// hundredth and this many entries.
func synproxyVisitOf(ok uint64, p99 time.Duration, entries int) *synproxyVisit {
	return &synproxyVisit{ConnectSummary: lab.ConnectSummary{Begun: 10_000, OK: ok, Connect: lab.Latency{P99: p99}}, flood: 1e6, least: 1e6, entries: entries}
}

// wantTables has figures for the cases of these names; able is as much as most.
func wantTables(syn, ack map[string]report.Samples, visits map[string]map[load][]*synproxyVisit) *synproxyBuilder {
	b := &synproxyBuilder{Builder: rig.Builder{Session: &rig.Session{
		Options: rig.Options{Rounds: 2, Quick: true, Phase: 5 * time.Second}, Outcome: &report.Outcome{Name: "synproxy"},
	}}}
	b.cases = synproxyTestCases()
	for _, c := range b.cases {
		c.newFigures(b.Session)
		for f, figures := range map[*Flood]map[string]report.Samples{SYNs: syn, ACKs: ack} {
			if most := figures[c.name]; most != nil && c.floods[f] != nil {
				c.floods[f].most, c.floods[f].able = most, most
				for i := range c.floods[f].at {
					c.floods[f].at[i] = report.Samples{float64(i+1) * 1e5}
				}
			}
		}
		for l, v := range visits[c.name] {
			c.visits[l] = v
		}
	}
	return b
}

func TestSynproxyBars(t *testing.T) {
	flood := load{SYNs, barFlood}
	b := wantTables(
		map[string]report.Samples{limitTX: {4e6, 4e6}, synproxyAt: {0.2e6, 0.2e6}, "floodwall/host": {2.4e6, 2.5e6}, "floodwall/router": {2e6, 2.2e6}},
		map[string]report.Samples{limitDrop: {6e6, 6e6}, synproxyAt: {1e6, 1e6}, "floodwall/host": {4.4e6, 4.4e6}},
		map[string]map[load][]*synproxyVisit{
			"syncookies=1":   {quiet: {synproxyVisitOf(10_000, 1000, 0)}, flood: {synproxyVisitOf(10, 9000, 0)}},
			"floodwall/host": {quiet: {synproxyVisitOf(10_000, 1000, 0)}, flood: {synproxyVisitOf(9990, 2000, 0), synproxyVisitOf(9990, 2002, 1)}},
			"floodwall/router": {
				quiet: {synproxyVisitOf(10_000, 1000, 9)}, flood: {synproxyVisitOf(9989, 1000, 9)}, {ACKs, barFlood}: {synproxyVisitOf(10_000, 1000, 9)},
			},
		})
	b.publish()
	var got []string
	for _, bar := range b.Outcome.Bars {
		got = append(got, strings.TrimPrefix(bar.Name, "synproxy/")+" "+bar.String())
	}
	want := []string{
		"syn/floodwall/host of xdp-tx >= 0.60 met", "syn/floodwall/host x synproxy/host >= 8.00 met",
		"syn/floodwall/host able of xdp-tx >= 0.60 met",
		"syn/floodwall/router of xdp-tx >= 0.60 MISSED", "syn/floodwall/router able of xdp-tx >= 0.60 MISSED",
		"ack/floodwall/host of xdp-drop >= 0.75 MISSED", "ack/floodwall/host x synproxy/host >= 7.00 MISSED",
		"ack/floodwall/host able of xdp-drop >= 0.75 MISSED",
		"clients/floodwall/host/quiet entries <= 0.00 met",
		"clients/floodwall/host/syn=1Mpps completed >= 0.999 met", "clients/floodwall/host/syn=1Mpps connect p99 x quiet <= 2.00 MISSED",
		"clients/floodwall/host/syn=1Mpps entries <= 0.00 MISSED",
		"clients/floodwall/router/syn=1Mpps completed >= 0.999 MISSED", "clients/floodwall/router/syn=1Mpps connect p99 x quiet <= 2.00 met",
		"clients/floodwall/router/ack=1Mpps completed >= 0.999 met", "clients/floodwall/router/ack=1Mpps connect p99 x quiet <= 2.00 met",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("bars (-want +got):\n%s", diff)
	}
}

// TestWeak has an attacker who could not send all of the flood: nothing is said to be met beside it.
func TestWeak(t *testing.T) {
	flood := load{SYNs, barFlood}
	for name, weaken := range map[string]func(*synproxyVisit){
		"less":   func(v *synproxyVisit) { v.flood = 0.9e6 },
		"uneven": func(v *synproxyVisit) { v.least = 0.4e6 },
	} {
		weak := synproxyVisitOf(10_000, 1000, 0)
		weaken(weak)
		b := wantTables(nil, nil, map[string]map[load][]*synproxyVisit{
			"floodwall/router": {quiet: {synproxyVisitOf(10_000, 1000, 0)}, flood: {weak}},
		})
		b.publish()
		for _, bar := range b.Outcome.Bars {
			if strings.Contains(bar.Name, "syn=1Mpps") {
				t.Errorf("%s: a bar beside a weak flood: %s %s", name, bar.Name, bar)
			}
		}
	}
}

// TestDisturbedQuiet has others on the clients' CPU while there is no flood: what is slow then is not what a flood is measured
// by.
func TestDisturbedQuiet(t *testing.T) {
	flood := load{SYNs, barFlood}
	disturbed := synproxyVisitOf(10_000, 5000, 0)
	disturbed.Stalled = mostStalled + 1
	for _, test := range []struct {
		quiet []*synproxyVisit
		want  string
	}{
		{[]*synproxyVisit{disturbed}, ""},
		{[]*synproxyVisit{disturbed, synproxyVisitOf(10_000, 1000, 0), disturbed}, "3.00"},
	} {
		b := wantTables(nil, nil, map[string]map[load][]*synproxyVisit{"floodwall/host": {quiet: test.quiet, flood: {synproxyVisitOf(10_000, 3000, 0)}}})
		b.publish()
		got := ""
		for _, bar := range b.Outcome.Bars {
			if strings.HasSuffix(bar.Name, "x quiet") {
				got = fmt.Sprintf("%.2f", bar.Value)
			}
		}
		if got != test.want {
			t.Errorf("%d visits without a flood: %q, want %q", len(test.quiet), got, test.want)
		}
	}
}

func TestSynproxyTables(t *testing.T) {
	b := wantTables(map[string]report.Samples{limitTX: {4e6, 4e6}, "floodwall/host": {2e6, 3e6}}, nil,
		map[string]map[load][]*synproxyVisit{"syncookies=2": {quiet: {synproxyVisitOf(10_000, 1e6, 0)}}})
	b.find(synproxyAt).missing = "iptables-legacy-restore is not installed"
	b.publish()
	rows := map[string]string{}
	for _, table := range b.Outcome.Tables {
		for _, row := range table.Rows {
			if len(row) != len(table.Head) {
				t.Errorf("%s: row %q has %d cells, want %d", table.Title, row, len(row), len(table.Head))
			}
			if text := strings.Join(row, "|"); rows[row[0]] == "" {
				rows[row[0]] = text
			}
		}
	}
	for label, want := range map[string]string{
		"floodwall, host":                    "floodwall, host|2.96|2.50|2.00 .. 3.00|0.62|>= 0.60 met|||2.50|0.62|>= 0.60 met|~",
		"kernel SYNPROXY, host":              "kernel SYNPROXY, host|0.41||||||||||iptables-legacy-restore is not installed",
		"kernel, tcp_syncookies=2: no flood": "kernel, tcp_syncookies=2: no flood|100.00%|100.00% .. 100.00%||2000|0.000 ms|1.00 ms|||0.000 ms||0||",
	} {
		if rows[label] != want {
			t.Errorf("row\n%s\nwant\n%s", rows[label], want)
		}
	}
	curve := b.Outcome.Curves[1]
	want := report.Curve{
		Name: "synproxy/syn/floodwall/host", Chart: "SYN flood", Label: "floodwall, host",
		X: "pps", Y: "SYN-ACKs/s", Points: [][2]float64{{0.25e6, 1e5}, {1e6, 2e5}},
	}
	if diff := cmp.Diff(want, curve); diff != "" {
		t.Errorf("curve (-want +got):\n%s", diff)
	}
}

// TestClimb looks for the top of hills.
func TestClimb(t *testing.T) {
	for _, test := range []struct {
		name         string
		first, top   float64 // the most before; the offer of which most is taken
		least, tries float64
	}{
		{"a slow receiver", 0.4e6, 0.5e6, 0.48e6, 20}, {"a fast one", 2e6, 5e6, 4.5e6, 20}, {"one that takes all", 2e6, math.Inf(1), mostOffer, 40},
		{"one that takes nothing", 0, 0, 0, 0},
	} {
		tries := 0.0
		most, err := climb(test.first, []float64{1.1, 1.3, 1.6, 2.2}, func(pps float64) (float64, error) {
			tries++
			return min(pps, max(0, 2*test.top-pps)), nil
		})
		if err != nil || most < test.least || tries > test.tries {
			t.Errorf("%s: %g after %g tries, %v; want at least %g after at most %g", test.name, most, tries, err, test.least, test.tries)
		}
	}
}

// TestSynproxyClaims judges the talk likewise.
func TestSynproxyClaims(t *testing.T) {
	const all = "confirmed, confirmed, confirmed, confirmed, confirmed"
	talk := func() (syn, ack map[string]report.Samples) {
		return map[string]report.Samples{limitTX: {10.8e6, 10.8e6}, synproxyAt: {0.406e6, 0.406e6}, "floodwall/host": {2.96e6, 2.96e6}},
			map[string]report.Samples{limitDrop: {24.5e6, 24.5e6}, synproxyAt: {0.9e6, 0.9e6}, "floodwall/host": {5.6e6, 5.6e6}}
	}
	syn, ack := talk()
	if got := Verdicts(wantTables(syn, ack, nil).claims()); got != all {
		t.Errorf("the talk's own figures: %s", got)
	}
	syn["floodwall/host"], ack[synproxyAt], ack[limitDrop] = report.Samples{2e6, 2e6}, report.Samples{5e6, 5e6}, nil
	if got, want := Verdicts(wantTables(syn, ack, nil).claims()), "refuted, refuted, confirmed, refuted, not measurable here"; got != want {
		t.Errorf("other figures: %s, want %s", got, want)
	}
	syn[limitTX] = report.Samples{4e6, 8e6}
	if got, want := Verdicts(wantTables(syn, ack, nil).claims()[2:3]), "not measurable here~"; got != want {
		t.Errorf("an unsteady limit: %s, want %s", got, want)
	}
}
