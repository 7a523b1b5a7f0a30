// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
)

// tool is a row of the table: the names of results by column, "" for none.
type tool struct {
	label   string
	results [columns]string
}

// The columns: numbers of rules, of which the last drops the packet, and numbers of addresses in lists.
const columns = 6

var (
	columnHead = [columns]string{"no rule before the drop", "20", "500", "10,000", "1M listed addresses", "10M"}
	rules      = [4]float64{0, 20, 500, 10_000} // of the first columns
)

const limitLabel = "empty XDP program (the limit)"

var tools = []tool{
	{limitLabel, [columns]string{"drop/one-core/empty"}},
	{"floodwall", [columns]string{
		"drop/one-core/floodwall/rules=0", "drop/one-core/floodwall/rules=20", "drop/one-core/floodwall/rules=500",
		"drop/one-core/floodwall/rules=10000", "sets/one-core/n=1000000/floodwall/listed", "sets/one-core/n=10000000/floodwall/listed",
	}},
	{"BPF hash map alone", lists("bpf-hash")},
	{"BPF LPM trie alone", lists("bpf-lpm")},
	{"nft, ingress hook", [columns]string{
		"drop/one-core/nft/ingress", "drop/one-core/nft/ingress/rules=20", "drop/one-core/nft/ingress/rules=500", "",
		"sets/one-core/n=1000000/nft/ingress/listed", "sets/one-core/n=10000000/nft/ingress/listed",
	}},
	{"iptables, raw (with ipset)", [columns]string{
		"drop/one-core/iptables/raw", "", "", "",
		"sets/one-core/n=1000000/ipset/listed", "sets/one-core/n=10000000/ipset/listed",
	}},
}

func lists(name string) (all [columns]string) {
	all[4] = "sets/one-core/n=1000000/" + name + "/listed"
	all[5] = "sets/one-core/n=10000000/" + name + "/listed"
	return all
}

// shown returns the names of all shown results.
func shown() (names []string) {
	for _, t := range tools {
		names = append(names, t.results[:]...)
	}
	return names
}

// nanoseconds returns the cost of a packet in a result; false if it was not measured.
func nanoseconds(r *report.Report, name string) (float64, bool) {
	for _, o := range r.Experiments {
		for _, res := range o.Results {
			for _, m := range res.Metrics {
				if res.Name == name && m.Unit == "ns/op" {
					return m.Value, true
				}
			}
		}
	}
	return 0, false
}

// readmeTable returns the table in Markdown, with the machine of the measurement.
func readmeTable(r *report.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "![%s](%s)\n\n", pictureTitle, pictureFile)
	fmt.Fprintf(&b, "| | %s |\n|---|%s\n", strings.Join(columnHead[:], " | "), strings.Repeat("---:|", columns))
	for _, t := range tools {
		bold := ""
		if t.label == "floodwall" {
			bold = "**"
		}
		fmt.Fprintf(&b, "| %s%s%s |", bold, t.label, bold)
		for _, name := range t.results {
			text := ""
			if ns, ok := nanoseconds(r, name); ok {
				text = " " + bold + fmt.Sprintf("%.0f", ns) + bold
			}
			b.WriteString(text + " |")
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "\nNanoseconds of the receiving thread for a 64-byte packet that is dropped. %s, %s.\n",
		r.Machine, r.Time.Format("2006-01-02"))
	return b.String()
}

const pictureTitle = "What it costs to drop a packet after rules that do not match"

// picture returns the chart of the table's first columns. A logarithmic axis has no 0, so the number of rules includes the one that drops.
func picture(r *report.Report) *report.Picture {
	p := &report.Picture{Title: pictureTitle, X: "rules, with the one that drops", Y: "nanoseconds"}
	for _, t := range tools {
		var points [][2]float64
		for i, n := range rules {
			if ns, ok := nanoseconds(r, t.results[i]); ok {
				points = append(points, [2]float64{n + 1, ns})
			}
		}
		if t.label == limitLabel && len(points) == 1 {
			points = append(points, [2]float64{rules[len(rules)-1] + 1, points[0][1]}) // this tool has no rules
		}
		p.Line(t.label, points)
	}
	return p
}
