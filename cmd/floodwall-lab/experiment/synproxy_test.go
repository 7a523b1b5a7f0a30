// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
)

// synproxyVisitOf returns a visit with a load. This number of 10,000 connections was completed, with this 99th percentile of the connect time and
// this number of entries.
func synproxyVisitOf(l load, ok uint64, p99 time.Duration, entries int) rig.Reading {
	sum := lab.ConnectSummary{Begun: 10_000, OK: ok, Connect: lab.Latency{P99: p99}}
	return clientsReading(sum, l, l.pps, l.pps, entries)
}

// wantTables has these figures for the guards of these names and for the rows of clients. The able rate is the highest rate.
func wantTables(syn, ack map[string]report.Samples, clients map[string][]rig.Reading) []*rig.Table {
	b := &rig.Builder{Session: &rig.Session{Options: rig.Options{Rounds: 2, Quick: true, Phase: 5 * time.Second}}}
	tables := synproxyTables(b)
	for i, figures := range []map[string]report.Samples{syn, ack} {
		for name, most := range figures {
			r := tables[i].Find(tcpFloods[i].name + "/" + name)
			for _, pps := range most {
				r.Rounds = append(r.Rounds, rig.Reading{"Mpps": pps / 1e6, able: pps / 1e6, rateUnit(0.25e6): 1e5, rateUnit(1e6): 2e5})
			}
		}
	}
	for name, rounds := range clients {
		tables[2].Find("clients/" + name).Rounds = rounds
	}
	return tables
}

var synFlood, ackFlood = load{SYNs, barFlood}, load{ACKs, barFlood}

func TestSynproxyBars(t *testing.T) {
	tables := wantTables(
		map[string]report.Samples{limitTX: {4e6, 4e6}, synproxyAt: {0.2e6, 0.2e6}, "floodwall/host": {2.4e6, 2.5e6}, "floodwall/router": {2e6, 2.2e6}},
		map[string]report.Samples{limitDrop: {6e6, 6e6}, synproxyAt: {1e6, 1e6}, "floodwall/host": {4.4e6, 4.4e6}},
		map[string][]rig.Reading{
			"syncookies=1/quiet": {synproxyVisitOf(quiet, 10_000, 1000, 0)}, "syncookies=1/syn=1Mpps": {synproxyVisitOf(synFlood, 10, 9000, 0)},
			"floodwall/host/quiet":       {synproxyVisitOf(quiet, 10_000, 1000, 0), synproxyVisitOf(quiet, 10_000, 1000, 0)},
			"floodwall/host/syn=1Mpps":   {synproxyVisitOf(synFlood, 9990, 2000, 0), synproxyVisitOf(synFlood, 9990, 2002, 1)},
			"floodwall/router/quiet":     {synproxyVisitOf(quiet, 10_000, 1000, 9)},
			"floodwall/router/syn=1Mpps": {synproxyVisitOf(synFlood, 9989, 1000, 9)}, "floodwall/router/ack=1Mpps": {synproxyVisitOf(ackFlood, 10_000, 1000, 9)},
		})
	_, bars := published(t, "synproxy", tables...)
	var got []string
	for _, bar := range bars {
		got = append(got, strings.TrimPrefix(bar, "synproxy/"))
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

// TestWeak has an attacker that could not send all of the flood. No goal may then count as met.
func TestWeak(t *testing.T) {
	for name, weaken := range map[string]string{"less": "flood-share", "uneven": "least-share"} {
		weak := synproxyVisitOf(synFlood, 10_000, 1000, 0)
		weak[weaken] *= report.Choice(name == "less", 0.9, 0.4)
		tables := wantTables(nil, nil, map[string][]rig.Reading{
			"floodwall/router/quiet": {synproxyVisitOf(quiet, 10_000, 1000, 0)}, "floodwall/router/syn=1Mpps": {weak},
		})
		_, bars := published(t, "synproxy", tables[2])
		for _, bar := range bars {
			if strings.Contains(bar, "syn=1Mpps") {
				t.Errorf("%s: a bar beside a weak flood: %s", name, bar)
			}
		}
	}
}

// TestDisturbedQuiet has other load on the clients' CPU while there is no flood. Slow connections of that time must not be the reference for a flood.
func TestDisturbedQuiet(t *testing.T) {
	others := clientsReading(lab.ConnectSummary{Begun: 1, OK: 1, Connect: lab.Latency{P99: 5000}, Stalled: mostStalled + 1}, quiet, 0, 0, 0)
	calm, flooded := synproxyVisitOf(quiet, 10_000, 1000, 0), synproxyVisitOf(synFlood, 10_000, 3000, 0)
	for _, test := range []struct {
		quiet []rig.Reading
		want  string
	}{{[]rig.Reading{others}, ""}, {[]rig.Reading{others, calm, others}, "3.00"}} {
		tables := wantTables(nil, nil, map[string][]rig.Reading{"floodwall/host/quiet": test.quiet, "floodwall/host/syn=1Mpps": {flooded, flooded, flooded}})
		o := &report.Outcome{Name: "synproxy"}
		tables[2].Publish(o)
		got := ""
		for _, bar := range o.Bars {
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
	tables := wantTables(map[string]report.Samples{limitTX: {4e6, 4e6}, "floodwall/host": {2e6, 3e6}}, nil,
		map[string][]rig.Reading{"syncookies=2/quiet": {synproxyVisitOf(quiet, 10_000, 1e6, 0)}})
	tables[0].Find("syn/" + synproxyAt).Missing = "iptables-legacy-restore is not installed"
	rows, _ := published(t, "synproxy", tables...)
	for label, want := range map[string]string{
		"floodwall, host":                    "2.96|2.50|2.00 .. 3.00|0.62||2.50|0.62|~",
		"kernel SYNPROXY, host":              "0.41|||||||iptables-legacy-restore is not installed",
		"kernel, tcp_syncookies=2: no flood": "100.00%|100.00% .. 100.00%|2000|0.000 ms|1.00 ms||0.000 ms||0|",
	} {
		if rows[label] != want {
			t.Errorf("row %s\n%s\nwant\n%s", label, rows[label], want)
		}
	}
	o := &report.Outcome{Name: "synproxy"}
	tables[0].Publish(o)
	want := report.Curve{
		Name: "synproxy/syn/floodwall/host", Chart: "SYN flood", Label: "floodwall, host",
		X: "pps", Y: "SYN-ACKs/s", Points: [][2]float64{{0.25e6, 1e5}, {1e6, 2e5}},
	}
	if diff := cmp.Diff(want, o.Curves[1]); diff != "" {
		t.Errorf("curve (-want +got):\n%s", diff)
	}
}

// TestClimb looks for the maximum of curves with one.
func TestClimb(t *testing.T) {
	for _, test := range []struct {
		name         string
		first, top   float64 // the highest before; the offer of the maximum
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

// TestSynproxyClaims judges the talk by its own figures, and by others.
func TestSynproxyClaims(t *testing.T) {
	const all = "confirmed, confirmed, confirmed, confirmed, confirmed"
	talk := func() (syn, ack map[string]report.Samples) {
		return map[string]report.Samples{limitTX: {10.8e6, 10.8e6}, synproxyAt: {0.406e6, 0.406e6}, "floodwall/host": {2.96e6, 2.96e6}},
			map[string]report.Samples{limitDrop: {24.5e6, 24.5e6}, synproxyAt: {0.9e6, 0.9e6}, "floodwall/host": {5.6e6, 5.6e6}}
	}
	syn, ack := talk()
	if got := Verdicts(synproxyClaims(wantTables(syn, ack, nil))); got != all {
		t.Errorf("the talk's own figures: %s", got)
	}
	syn["floodwall/host"], ack[synproxyAt], ack[limitDrop] = report.Samples{2e6, 2e6}, report.Samples{5e6, 5e6}, nil
	if got, want := Verdicts(synproxyClaims(wantTables(syn, ack, nil))), "refuted, refuted, confirmed, refuted, not measurable here"; got != want {
		t.Errorf("other figures: %s, want %s", got, want)
	}
	syn[limitTX] = report.Samples{4e6, 8e6}
	if got, want := Verdicts(synproxyClaims(wantTables(syn, ack, nil))[2:3]), "not measurable here~"; got != want {
		t.Errorf("an unsteady limit: %s, want %s", got, want)
	}
}
