// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/internal/lab"
)

// Comparison compares Floodwall with the usual tool for the same work, and with the highest possible rate. Figures that were not measured are 0.
type Comparison struct {
	What  string // the work
	Unit  string
	Tool  string // the usual tool
	Bound string // the program with the highest possible rate
	Own   float64
	Rival float64
	Limit float64

	Unsteady bool // one of the figures is unsteady
}

// headline is a comparison, by the names of results and the unit of its figure.
type headline struct {
	what, unit        string
	own, rival, limit string // names of results
	tool, bound       string
	rivalUnit         string // "": the same
}

// headlines are the comparisons that a reader wants to see first.
var headlines = []headline{
	{
		what: "drop, the first rule", unit: "Mpps", own: "drop/floodwall/rules=0", rival: "drop/iptables/raw",
		limit: "drop/least", tool: "iptables raw", bound: leastProgram,
	},
	{
		what: "drop, after 500 rules", unit: "Mpps", own: "drop/floodwall/rules=500", rival: "drop/nft/ingress/rules=500",
		limit: "drop/least", tool: "nft ingress", bound: leastProgram,
	},
	{
		what: "drop by a list of 1,000,000 addresses", unit: "Mpps", own: "sets/n=1000000/floodwall/listed",
		rival: "sets/n=1000000/ipset/listed", limit: "sets/least", tool: "ipset", bound: leastProgram,
	},
	{
		what: "drop by a list of 100,000 addresses", unit: "Mpps", own: "sets/n=100000/floodwall/listed",
		rival: "sets/n=100000/ipset/listed", limit: "sets/least", tool: "ipset", bound: leastProgram,
	},
	{
		what: "limit to 1000/s per /16", unit: "Mpps", own: "limit/floodwall/xdp/random", rival: "limit/iptables/random",
		limit: "limit/least", tool: "iptables hashlimit", bound: leastProgram,
	},
	{
		what: "look for a text in packets", unit: "Mpps", own: "payload/floodwall/xdp/string/n=1",
		rival: "payload/iptables/string/bm/n=1", limit: "payload/least", tool: "iptables string", bound: leastProgram,
	},
	{
		what: "answer a SYN flood", unit: "Mpps", own: "synproxy/syn/floodwall/host", rival: "synproxy/syn/synproxy/host",
		limit: "synproxy/syn/xdp-tx", tool: "kernel SYNPROXY", bound: "empty XDP_TX",
	},
	{
		what: "drop an ACK flood", unit: "Mpps", own: "synproxy/ack/floodwall/host", rival: "synproxy/ack/synproxy/host",
		limit: "synproxy/ack/xdp-drop", tool: "kernel SYNPROXY", bound: emptyProgram,
	},
	{
		what: "serve the web where stateful rules fill their table", unit: "req/s", own: "conntrack/floodwall/auto",
		rival: "conntrack/nft/full", rivalUnit: "full-req/s", limit: "conntrack/no-firewall",
		tool: "nft, stateful", bound: "no firewall",
	},
	{
		what: "answer DNS clients beside a flood of 2 Mpps", unit: "answered/s", own: "dns/random/floodwall",
		rival: "dns/random/unbound", limit: "dns/quiet/nothing", tool: "unbound's own limits", bound: "no flood",
	},
}

// leastProgram is the program with the smallest work of a filter.
const leastProgram = "the least filter"

// emptyProgram is the limit of programs that drop on one core.
const emptyProgram = "empty XDP_DROP"

// Headlines returns the comparisons with a figure of Floodwall, in a fixed order.
func (r *Report) Headlines() (all []Comparison) {
	for _, h := range headlines {
		c := Comparison{What: h.what, Unit: h.unit, Tool: h.tool, Bound: h.bound}
		c.Own = r.figure(h.own, h.unit)
		c.Rival = r.figure(h.rival, Choice(h.rivalUnit == "", h.unit, h.rivalUnit))
		c.Limit = r.figure(h.limit, h.unit)
		c.Unsteady = r.unsteady(h.own) || r.unsteady(h.rival) || r.unsteady(h.limit)
		if c.Own > 0 {
			all = append(all, c)
		}
	}
	return all
}

// figure returns the named result's figure in a unit; 0 if it has none.
func (r *Report) figure(name, unit string) float64 {
	metrics := r.result(name).Metrics
	if i := slices.IndexFunc(metrics, func(m lab.Metric) bool { return m.Unit == unit }); i >= 0 {
		return metrics[i].Value
	}
	return 0
}

// unsteady reports whether the named result is marked.
func (r *Report) unsteady(name string) bool { return strings.HasPrefix(r.result(name).Note, "~") }

// result returns the result with a name; empty if there is none.
func (r *Report) result(name string) lab.Result {
	for _, e := range r.Experiments {
		if i := slices.IndexFunc(e.Results, func(res lab.Result) bool { return res.Name == name }); i >= 0 {
			return e.Results[i]
		}
	}
	return lab.Result{}
}

// shortTable returns the headlines as a table; nil if there are none.
func (r *Report) shortTable() *Table {
	all := r.Headlines()
	if len(all) == 0 {
		return nil
	}
	t := &Table{Title: "in short", Head: []string{"", "floodwall", "the usual tool", "times", "limit", "of the limit", ""}}
	figure := func(v float64, form string) string { return Choice(v > 0, fmt.Sprintf(form, v), "") }
	for _, c := range all {
		form := Choice(c.Unit == "Mpps", "%.2f", "%.0f")
		row := []string{
			c.What + ", " + c.Unit, figure(c.Own, form), c.Tool + " " + Choice(c.Rival > 0, fmt.Sprintf(form, c.Rival), "not measured"), "",
			c.Bound + " " + figure(c.Limit, form), "", Choice(c.Unsteady, "~", ""),
		}
		if c.Rival > 0 {
			row[3] = figure(c.Own/c.Rival, "%.1f")
		}
		if c.Limit > 0 {
			row[5] = figure(c.Own/c.Limit, "%.2f")
		}
		t.AddRow(row...)
	}
	return t
}

// missedTable returns the bars that were missed; nil if all were met.
func (r *Report) missedTable() *Table {
	t := &Table{Title: fmt.Sprintf("for developers: Floodwall's own goals that were missed, %d of %d", len(r.Missed()), r.Bars()), Head: []string{"", "here", "goal"}}
	for _, b := range r.Missed() {
		t.AddRow(b.Name, strconv.FormatFloat(b.Value, 'g', 3, 64), b.String())
	}
	return Choice(len(t.Rows) > 0, t, nil)
}

// failedTable returns the experiments that did not reach their end; nil if all did.
func (r *Report) failedTable() *Table {
	t := &Table{Title: "experiments that did not reach their end", Head: []string{"", ""}}
	for _, e := range r.Failed() {
		t.AddRow(e.Name, e.Error)
	}
	for _, name := range r.NotRun {
		t.AddRow(name, "not started")
	}
	return Choice(len(t.Rows) > 0, t, nil)
}
