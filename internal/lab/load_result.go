// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// LoadResult contains the results of the requests of a Plan, also as JSON.
type LoadResult struct {
	URL    string         `json:"url"`
	Server netip.AddrPort `json:"server"`
	LoadSummary
	Samples []Sample `json:"samples"`

	plan *Plan
}

// The size of the chart.
const (
	chartLines = 60
	chartWidth = 40
)

// Text shows the result: a chart over time, how many requests were answered and failed, and the times by phase.
func (r *LoadResult) Text() string {
	var t wording.Text
	t.Line("%s", r.how())
	t.Line("")
	t.WriteString(Chart(r.Samples, chartLines, chartWidth))
	t.Line("")
	t.Line("answered  %s, %.1f per second, %s", wording.Count(r.OK), r.Rate, wording.Bytes(r.Bytes))
	t.Line("failed    %s%s", wording.Count(r.Failed), r.kinds(" (", ")"))
	if r.Interrupted > 0 {
		t.Line("under way %s when it was interrupted", wording.Count(r.Interrupted))
	}
	if r.OK == 0 {
		return t.String()
	}
	t.Line("")
	t.WriteString(strings.Join(r.phases().Lines(), "\n") + "\n")
	return t.String()
}

// phases returns a table of the times of the answered requests.
func (r *LoadResult) phases() *wording.Table {
	t := wording.NewTable("of those answered", ">requests", ">mean", ">half", ">90%", ">99%", ">99.9%", ">max")
	row := func(name string, n uint64, l Latency) {
		t.Row(name, wording.Count(n), Millis(l.Mean), Millis(l.P50), Millis(l.P90), Millis(l.P99), Millis(l.P999), Millis(l.Max))
	}
	for _, p := range r.Phases {
		row(p.Name, p.Requests, p.Latency)
	}
	row("whole request", r.OK, r.Latency)
	return t
}

// how describes the requests in a line.
func (r *LoadResult) how() string {
	o := r.plan.Load
	parts := []string{r.URL}
	if r.URL != fmt.Sprintf("http://%s/", r.Server) {
		parts[0] += fmt.Sprintf(" at %s", r.Server)
	}
	if o.Rate > 0 {
		parts = append(parts, fmt.Sprintf("%g requests a second", o.Rate))
	}
	if o.Connections > 0 {
		parts = append(parts, wording.Things(o.Connections, "connection", "connections"))
	}
	if !o.KeepAlive {
		parts = append(parts, "a new one for each request")
		if o.Connections == 0 {
			parts[len(parts)-1] = "a new connection for each"
		}
	}
	return strings.Join(append(parts, fmt.Sprintf("HTTP/%s", r.plan.Version)), ", ")
}

// kinds lists the failures by kind, the most frequent first; "" if there are none.
func (r *LoadResult) kinds(before, after string) string {
	kinds := slices.SortedFunc(maps.Keys(r.Errors), func(a, b string) int {
		if d := int(r.Errors[b]) - int(r.Errors[a]); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for i, k := range kinds {
		kinds[i] = wording.Count(r.Errors[k]) + " " + k
	}
	if len(kinds) == 0 {
		return ""
	}
	return before + strings.Join(kinds, ", ") + after
}

// Trouble returns an error if no request was answered.
func (r *LoadResult) Trouble() error {
	if r.OK > 0 || r.Failed == 0 {
		return nil
	}
	hints := []struct{ kind, hint string }{
		{FailedRefused, fmt.Sprintf("nothing listens at %s: is the server running?", r.Server)},
		{FailedTimeout, "is the address right, and does a firewall drop the requests? --timeout gives a slow server more time"},
		{FailedUnreachable, fmt.Sprintf("there is no way to %s from here", r.Server.Addr())},
		{FailedCertificate, "--insecure takes any certificate"},
		{FailedNoTLS, "does it speak http:// at this port?"},
		{FailedReset, "does it speak https:// at this port?"},
		{FailedClosed, "does it speak https:// at this port?"},
		{FailedAnswer, "is that the port of a web server?"},
		{"status 400", "does it speak https:// at this port?"},
	}
	remedy := ""
	for _, h := range hints {
		if r.Errors[h.kind] > 0 {
			remedy = h.hint
			break
		}
	}
	return wording.Hinted("no request was answered: "+r.kinds("", ""), remedy)
}
