package experiment

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

func TestChurnTable(t *testing.T) {
	b := &churnBuilder{synproxyBuilder: synproxyBuilder{Builder: rig.Builder{Session: &rig.Session{Outcome: &report.Outcome{Name: "synproxy"}}}}}
	b.rows = churnCases()
	for i, rate := range []float64{20_000, 14_000, 19_600, 15_000} {
		b.rows[i].rates[1] = report.Samples{rate, rate}
	}
	b.rows[3].failed[1] = 7
	b.publish()
	rows := map[string]string{}
	for _, row := range b.Outcome.Tables[0].Rows {
		rows[row[0]+" "+row[1]] = strings.Join(row[2:], "|")
	}
	for label, want := range map[string]string{
		"floodwall, syn: off, host 20":     "20000|||0||",
		"kernel SYNPROXY, host 20":         "14000|0.700||0||",
		"floodwall, syn: protect, host 20": "19600|0.980|>= 0.95 met|0|<= 0.00 met|",
		"floodwall, syn: always, host 20":  "15000|0.750|>= 0.95 MISSED|7|<= 0.00 MISSED|",
		"floodwall, syn: always, host 1":   "|||||",
	} {
		if diff := cmp.Diff(want, rows[label]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", label, diff)
		}
	}
}
