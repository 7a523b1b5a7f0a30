package bench

import (
	"math"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/bench/report"
	"github.com/floodwall/floodwall/internal/bench/rig"
)

// TestGuardDivides has rows that were measured in some rounds, and in none: a ratio to the latter is an error, not a pass.
func TestGuardDivides(t *testing.T) {
	for _, c := range []struct {
		of, by report.Samples
		ratio  float64
		err    string
	}{
		{of: report.Samples{5e6, 4e6, 5e6}, by: report.Samples{9e6, 10e6, 8e6}, ratio: 2},
		{of: report.Samples{0, 5e6, 0}, by: report.Samples{0, 0, 10e6}, ratio: 2},
		{of: report.Samples{5e6}, by: report.Samples{0, 0}, err: "empty: no packet arrived in 2 rounds"},
		{of: report.Samples{0}, by: report.Samples{10e6}, err: "syn: no packet arrived in 1 rounds"},
		{of: report.Samples{0}, by: report.Samples{0}, err: "syn: no packet"},
	} {
		g := &guard{Builder: &rig.Builder{}, ratios: []Ratio{{Of: "syn", By: "empty", Most: 3}}}
		g.Add(&rig.Rate{Name: "empty", Rounds: c.by})
		g.Add(&rig.Rate{Name: "syn", Rounds: c.of})
		err := g.divide()
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v by %v: error %v, want %q", c.of, c.by, err, c.err)
			}
			continue
		}
		if r := g.ratios[0]; err != nil || r.Value != c.ratio || r.Exceeded() {
			t.Errorf("%v by %v: %+v, %v; want %v", c.of, c.by, r, err, c.ratio)
		}
	}
}

func TestExceeded(t *testing.T) {
	for value, want := range map[float64]bool{0.5: false, 2: false, 2.01: true, math.Inf(1): true} {
		if r := (Ratio{Most: 2, Value: value}); r.Exceeded() != want {
			t.Errorf("%v of at most 2: exceeded %t", value, r.Exceeded())
		}
	}
	if r := (Ratio{Most: 2, Value: math.NaN()}); !r.Exceeded() {
		t.Error("what is no number is within the bound")
	}
}
