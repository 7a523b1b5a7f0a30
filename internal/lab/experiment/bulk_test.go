package experiment

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

func TestBulkTable(t *testing.T) {
	b := &bulkBuilder{synproxyBuilder: synproxyBuilder{Builder: rig.Builder{Session: &rig.Session{Outcome: &report.Outcome{Name: "synproxy"}}}}}
	b.rows = bulkCases()
	b.find("synproxy", false).missing = "iptables-legacy-restore is not installed"
	for kind, figures := range map[string]bulkFigures{
		bulkOpen:    {rate: report.Samples{1000e6, 1000e6}, able: report.Samples{1100e6, 1100e6}},
		bulkPass:    {rate: report.Samples{900e6, 1000e6}, able: report.Samples{1000e6, 1000e6}},
		"floodwall": {rate: report.Samples{882e6, 980e6}, able: report.Samples{970e6, 970e6}},
	} {
		b.find(kind, false).ways[toServer] = figures
	}
	b.find("floodwall", true).ways[toClient] = bulkFigures{rate: report.Samples{1e6}, able: report.Samples{2e6}}
	b.publish()

	rows := map[string]string{}
	for _, table := range b.Outcome.Tables {
		for _, row := range table.Rows {
			if len(row) != len(table.Head) {
				t.Errorf("%s: row %q has %d cells, want %d", table.Title, row, len(row), len(table.Head))
			}
			rows[table.Title[len("synproxy: bulk transfer "):]+": "+row[0]] = strings.Join(row[1:], "|")
		}
	}
	for label, want := range map[string]string{
		"to the server, MB/s: nothing, host":         "1000||1.056||1100|1.100||",
		"to the server, MB/s: XDP_PASS, host":        "950|0.950|||1000|||",
		"to the server, MB/s: floodwall, host":       "931|0.931|0.980|>= 0.98 met|970|0.970|>= 0.98 MISSED|",
		"to the server, MB/s: kernel SYNPROXY, host": "|||||||iptables-legacy-restore is not installed",
		"to the client, MB/s: floodwall, router":     "1||||2|||",
	} {
		if rows[label] != want {
			t.Errorf("%s\n%s\nwant\n%s", label, rows[label], want)
		}
	}
	var bars []string
	for _, bar := range b.Outcome.Bars {
		bars = append(bars, bar.Name+" "+bar.String())
	}
	want := []string{
		"synproxy/bulk/to-server/floodwall/host of-xdp-pass >= 0.98 met",
		"synproxy/bulk/to-server/floodwall/host able-of-xdp-pass >= 0.98 MISSED",
	}
	if diff := cmp.Diff(want, bars); diff != "" {
		t.Errorf("bars (-want +got):\n%s", diff)
	}
}
