// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestUpstream reads the metrics of routers upstream. The daemon's own metrics must be present even while `floodwall-bgp run` does not answer. A
// feature that the policy does not use must have no metrics.
func TestUpstream(t *testing.T) {
	f := &UpstreamFigures{}
	scrape := func() string {
		out := httptest.NewRecorder()
		Handler(Upstream(func(context.Context) *UpstreamFigures { return f })).ServeHTTP(out, httptest.NewRequest("GET", "/v1/metrics", nil))
		if out.Code != 200 {
			t.Fatalf("status %d: %s", out.Code, out.Body)
		}
		return out.Body.String()
	}
	if text := scrape(); strings.Contains(text, "floodwall_bgp_ladder_total{") || strings.Contains(text, "floodwall_flowspec_routes{") || !strings.Contains(text, "floodwall_bgp_running 0\n") {
		t.Errorf("without `auto` and `receive`:\n%s", text)
	}
	f.Ladder = map[string]uint64{"announced": 3, "held": 0}
	f.FlowSpec = &FlowSpecFigures{Routes: map[string]int{"obeyed": 2, "foreign": 5}, Rules: 4, Changes: 7}
	text := scrape()
	for _, want := range []string{
		`floodwall_bgp_ladder_total{result="announced"} 3`, `floodwall_bgp_ladder_total{result="held"} 0`,
		`floodwall_flowspec_routes{state="obeyed"} 2`, `floodwall_flowspec_routes{state="foreign"} 5`,
		`floodwall_flowspec_rules 4`, `floodwall_flowspec_changes_total 7`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("the metrics lack %s:\n%s", want, text)
		}
	}
	if f = nil; strings.Contains(scrape(), "floodwall_bgp_running") {
		t.Error("there are figures of a policy without routers upstream")
	}
}
