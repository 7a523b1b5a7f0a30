// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// published returns the rows of tables as text, by their first cells, and their bars.
func published(t *testing.T, experiment string, tables ...*rig.Table) (rows map[string]string, bars []string) {
	t.Helper()
	o := &report.Outcome{Name: experiment}
	for _, table := range tables {
		table.Publish(o)
	}
	rows = map[string]string{}
	for _, table := range o.Tables {
		for _, row := range table.Rows {
			if len(row) != len(table.Head) {
				t.Errorf("%s: row %q has %d cells, want %d", table.Title, row, len(row), len(table.Head))
			}
			if text := strings.Join(row[1:], "|"); rows[row[0]] == "" {
				rows[row[0]] = text
			}
		}
	}
	for _, bar := range o.Bars {
		bars = append(bars, bar.Name+" "+bar.String())
	}
	return rows, bars
}

func TestBulkTable(t *testing.T) {
	tables := bulkTables(&rig.Builder{Session: &rig.Session{}})
	set := func(way int, name string, rounds ...[2]float64) {
		r := tables[way].Find("bulk/" + bulkWays[way].name + "/" + name)
		for _, v := range rounds {
			r.Rounds = append(r.Rounds, rig.Reading{"MB/s": v[0], "able-MB/s": v[1]})
		}
	}
	set(0, "open/host", [2]float64{1000, 1100}, [2]float64{1000, 1100})
	set(0, "xdp-pass/host", [2]float64{900, 1000}, [2]float64{1000, 1000})
	set(0, "floodwall/host", [2]float64{882, 970}, [2]float64{980, 970})
	set(1, "floodwall/router", [2]float64{1, 2})
	tables[0].Find("bulk/to-server/synproxy/host").Missing = "iptables-legacy-restore is not installed"
	server, bars := published(t, "synproxy", tables[0])
	client, _ := published(t, "synproxy", tables[1])
	for label, want := range map[string]string{
		"nothing, host": "1000||1.056|1100|1.100|", "XDP_PASS, host": "950|0.950||1000||",
		"floodwall, host":       "931|0.931|0.980|970|0.970|",
		"kernel SYNPROXY, host": "|||||iptables-legacy-restore is not installed",
	} {
		if server[label] != want {
			t.Errorf("%s\n%s\nwant\n%s", label, server[label], want)
		}
	}
	if got, want := client["floodwall, router"], "1|||2||"; got != want {
		t.Errorf("to the client: %s, want %s", got, want)
	}
	want := []string{
		"synproxy/bulk/to-server/floodwall/host of-xdp-pass >= 0.98 met",
		"synproxy/bulk/to-server/floodwall/host able-of-xdp-pass >= 0.98 MISSED",
	}
	if diff := cmp.Diff(want, bars); diff != "" {
		t.Errorf("bars (-want +got):\n%s", diff)
	}
}

func TestChurnTable(t *testing.T) {
	table := churnTable(&rig.Builder{Session: &rig.Session{}})
	for name, v := range map[string][2]float64{
		"floodwall-off": {20_000, 0}, "synproxy": {14_000, 0}, "floodwall-protect": {19_600, 0}, "floodwall-always": {15_000, 7},
	} {
		read := rig.Reading{"requests/s": v[0], "failed": v[1]}
		table.Find("churn/" + name + "/host/20").Rounds = []rig.Reading{read, read}
	}
	o := &report.Outcome{Name: "synproxy"}
	table.Publish(o)
	rows := map[string]string{}
	for _, row := range o.Tables[0].Rows {
		rows[row[0]+" "+row[1]] = strings.Join(row[2:], "|")
	}
	for label, want := range map[string]string{
		"floodwall, syn: off, host 20": "20000||0|", "kernel SYNPROXY, host 20": "14000|0.700|0|",
		"floodwall, syn: protect, host 20": "19600|0.980|0|", "floodwall, syn: always, host 20": "15000|0.750|14|", "floodwall, syn: always, host 1": "|||",
	} {
		if rows[label] != want {
			t.Errorf("%s: %s, want %s", label, rows[label], want)
		}
	}
	var bars []string
	for _, bar := range o.Bars {
		bars = append(bars, bar.Name+" "+bar.String())
	}
	want := []string{
		"synproxy/churn/floodwall-protect/host/20 of-off >= 0.95 met", "synproxy/churn/floodwall-protect/host/20 failed <= 0.00 met",
		"synproxy/churn/floodwall-always/host/20 of-off >= 0.95 MISSED", "synproxy/churn/floodwall-always/host/20 failed <= 0.00 MISSED",
	}
	if diff := cmp.Diff(want, bars); diff != "" {
		t.Errorf("bars (-want +got):\n%s", diff)
	}
}
