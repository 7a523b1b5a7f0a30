// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"gonum.org/v1/plot"

	"github.com/floodwall/floodwall/internal/lab"
)

// pageSample returns a report with something of each kind, including failures, and names that would break a page if not escaped.
func pageSample() *Report {
	return &Report{
		Time: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), Quick: true, NotRun: []string{"program"},
		Machine: lab.Machine{
			Kernel: "6.18.44", CPU: `Some "CPU" <x>`, Cores: 2, Mitigations: map[string]string{"retbleed": "IBRS"},
			Tools: map[string]string{"nft": "nftables v1.1.3"},
		},
		Experiments: []*Outcome{
			{
				Name: "drop", Doc: "packets per second", Seconds: 61,
				Results: []lab.Result{
					{Name: "drop/floodwall/rules=0", Metrics: pps(4e6), Note: "~"}, {Name: "drop/iptables/raw", Metrics: pps(1e6)},
					{Name: "drop/least", Metrics: pps(5e6)},
				},
				Bars: []*Bar{{Name: "drop/floodwall/rules=20 of least", Value: 0.81, Bound: 0.9}, {Name: "met", Value: 1, Bound: 0.5, Met: true}},
				Tables: []*Table{{
					Title: "drop: a flood", Head: []string{"", "Mpps", "bar", ""},
					Rows: [][]string{
						{"floodwall: 20 <rules>", "4.05", ">= 0.90 MISSED", "~"}, {"bpfilter", "", "", "not packaged in Debian"},
					},
					Notes: []string{"The first line of", "a paragraph.", "~ unsteady: a mark"},
				}},
				Ranked: []Ranking{{Title: "drop: a flood", Unit: "Mpps", Limit: "empty", Rows: []Rank{
					{Label: "empty", Value: 5, Least: 4.9, Most: 5.1}, {Label: "floodwall: 20 <rules>", Value: 4.05, Least: 4, Most: 4.1, Unsteady: true},
				}}},
			},
			{
				Name: "conntrack", Doc: "a full table", Seconds: 3, Error: "nginx: <gone>",
				Claims: []Claim{
					{Text: "a tenth is left", Article: "0.10", Here: "0.20", Verdict: Confirmed, Rule: "less than half is", Unsteady: true},
					{Text: "of a host that nobody has", Article: "7", Here: "no host", Verdict: NotMeasurable, Rule: "it is 7"},
				},
				Series: []Series{{Name: "conntrack/no-firewall", Label: "no firewall", Unit: "req/s", Seconds: 1, Values: []float64{900, 910, 905}}},
				Curves: []Curve{
					{Chart: "time by entries", Label: "floodwall", X: "entries", Y: "ms", LogX: true, LogY: true, Points: [][2]float64{{0, 1}, {1e3, 1}, {1e7, 1.1}}},
					{Chart: "time by entries", Label: "rules", X: "entries", Y: "ms", LogX: true, LogY: true, Points: [][2]float64{{1e3, 2}, {1e4, math.NaN()}, {1e5, 200}}},
					{Chart: "one point", Label: "a <b>", X: "x", Y: "y", LogX: true, Points: [][2]float64{{5, 5}}},
					{Chart: "nothing", Label: "none", X: "x", Y: "y", Points: [][2]float64{{1, math.Inf(1)}}},
				},
			},
		},
	}
}

func write(t *testing.T, r *Report) (text string, root *html.Node) {
	t.Helper()
	var b bytes.Buffer
	if err := WritePage(&b, r); err != nil {
		t.Fatal(err)
	}
	root, err := html.Parse(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	return b.String(), root
}

// find lists the elements of a kind.
func find(root *html.Node, kind atom.Atom) (all []*html.Node) {
	for n := range root.Descendants() {
		if n.DataAtom == kind || kind == 0 && n.Type == html.ElementNode {
			all = append(all, n)
		}
	}
	return all
}

func content(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data + " ")
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// TestPage checks that the page has all contents of a report.
func TestPage(t *testing.T) {
	_, root := write(t, pageSample())
	text := content(find(root, atom.Body)[0])
	for _, want := range []string{
		"This was a quick run", "conntrack did not reach its end: nginx: <gone>", "before these began: program",
		"1 confirmed, 1 not measurable here of 2 claims", "1 unsteady rows",
		"drop, the first rule Mpps floodwall ~ 4.00 iptables raw ~ 1.00 4.00 × iptables raw; 80% of the limit, the least filter (5.00)",
		"1 of 2 were missed. goal here drop/floodwall/rules=20 of least 0.81 >= 0.90 MISSED", "a tenth is left 0.10 ~ 0.20 confirmed less than half is",
		"of a host that nobody has 7 no host not measurable here it is 7", "It took 1m1s.",
		"floodwall: 20 <rules> 4.05 >= 0.90 MISSED ~ bpfilter not packaged in Debian", "The first line of a paragraph. ~ unsteady: a mark",
		`Some "CPU" <x>`, "Linux 6.18.44", "retbleed IBRS", "nft nftables v1.1.3",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// TestPageStandsAlone checks that a browser would fetch and run nothing, and that all links have a target.
func TestPageStandsAlone(t *testing.T) {
	text, root := write(t, pageSample())
	ids := map[string]bool{}
	for _, n := range find(root, 0) {
		if id := attribute(n, "id"); id != "" {
			if ids[id] {
				t.Errorf("two elements have the id %s", id)
			}
			ids[id] = true
		}
		switch n.DataAtom {
		case atom.Script, atom.Link, atom.Img, atom.Iframe, atom.Object, atom.Embed:
			t.Errorf("there is an element %s", n.Data)
		}
		for _, name := range []string{"src", "srcset", "xlink:href", "onload"} {
			if v := attribute(n, name); v != "" {
				t.Errorf("%s: %s=%q", n.Data, name, v)
			}
		}
	}
	for _, a := range find(root, atom.A) {
		if to, inside := strings.CutPrefix(attribute(a, "href"), "#"); !inside || !ids[to] {
			t.Errorf("link to %q", attribute(a, "href"))
		}
	}
	if found := regexp.MustCompile(`(?i)url\(|@import|https?:`).FindAllString(text, -1); len(found) > 0 {
		t.Errorf("the page refers to others: %q", found)
	}
}

// TestCharts parses the drawings as XML. No color may be fixed, and no coordinate may be missing.
func TestCharts(t *testing.T) {
	text, root := write(t, pageSample())
	drawings := regexp.MustCompile(`(?s)<svg .*?</svg>`).FindAllString(text, -1)
	var named []string
	for _, drawing := range drawings {
		decoder := xml.NewDecoder(strings.NewReader(drawing))
		for {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in\n%s", err, drawing)
			}
			start, ok := token.(xml.StartElement)
			if !ok {
				continue
			}
			for _, a := range start.Attr {
				if a.Name.Local == "aria-label" {
					named = append(named, a.Value)
				}
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") || regexp.MustCompile(`#[0-9A-Fa-f]{6}`).MatchString(a.Value) {
					t.Errorf("%s: %s=%q", start.Name.Local, a.Name.Local, a.Value)
				}
			}
		}
	}
	// Each chart appears for both widths. A chart without a point is left out.
	want := []string{"time by entries", "time by entries", "one point", "one point", "requests per second over time", "requests per second over time"}
	if strings.Join(named, ",") != strings.Join(want, ",") {
		t.Errorf("charts %q, want %q", named, want)
	}
	for i, label := range []string{"floodwall", "rules", "a <b>", "no firewall"} {
		if got := content(find(root, atom.Li)[legendAt(root)+i]); got != label {
			t.Errorf("line %d of the legends is %q, want %q", i, got, label)
		}
	}
	for _, tick := range []string{">1k<", ">10k<", ">10M<", ">0<", ">800<"} {
		if !strings.Contains(text, tick) {
			t.Errorf("no axis has the number %q", tick)
		}
	}
}

// legendAt returns the first item of a legend among all lists.
func legendAt(root *html.Node) int {
	for i, li := range find(root, atom.Li) {
		if attribute(li.Parent, "class") == "legend" {
			return i
		}
	}
	return -1
}

// TestEmptyPage writes an empty report, like a report of a run that was stopped immediately.
func TestEmptyPage(t *testing.T) {
	_, root := write(t, &Report{Experiments: []*Outcome{{Name: "drop", Error: "the run was stopped"}}})
	if text := content(root); !strings.Contains(text, "0 of 0 were missed.") {
		t.Errorf("the page says %q", text)
	}
}

// TestLooks checks that lines get their looks by their kind, the same in every chart.
func TestLooks(t *testing.T) {
	l, seen := looks{}, map[int]string{}
	for _, label := range []string{
		"floodwall, host", "XDP_TX (the limit)", "a", "b", "c", "d", "e", "f", "floodwall, router", "floodwall 3", "floodwall 4", "no limit",
	} {
		look := l.of(label)
		if other := seen[look]; other != "" {
			t.Errorf("%s looks as %s does", label, other)
		}
		seen[look] = label
		if l.of(label) != look {
			t.Errorf("%s has two looks", label)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, tt := range []struct {
		ticks     plot.Ticker
		low, high float64
		want      string
	}{
		{linearTicks(6), 0, 1e6, "0 200k 400k 600k 800k 1M"},
		{linearTicks(5), 0, 0.31, "0 0.1 0.2 0.3"},
		{logTicks(8), 1e3, 1e7, "1k 10k 100k 1M 10M"},
		{logTicks(8), 90, 2500, "100 200 500 1k 2k"},
		{logTicks(3), 1, 1e9, "1   1k   1M   1G"},
	} {
		var labels []string
		for _, tick := range tt.ticks.Ticks(tt.low, tt.high) {
			labels = append(labels, tick.Label)
		}
		if got := strings.Join(labels, " "); got != tt.want {
			t.Errorf("from %g to %g: %q, want %q", tt.low, tt.high, got, tt.want)
		}
	}
}

// pps returns the metrics of a packet rate.
func pps(rate float64) []lab.Metric {
	return []lab.Metric{{Value: 1e9 / rate, Unit: "ns/op"}, {Value: rate / 1e6, Unit: "Mpps"}}
}
