// SPDX-License-Identifier: Apache-2.0

// This file is the experiment synproxy: a web server under floods of SYNs and ACKs. It follows a talk of 2021.

package experiment

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
)

// synproxyGuard is a defence between the floods and the server.
type synproxyGuard struct {
	name, label string
	guard       rig.Guard
	behind      bool       // the server is behind the host that is flooded
	resets      bool       // it answers ACKs of no connection
	limit       *Flood     // it is a program on the attacker's link that shows the limit for this flood
	rival       string     // the name of the guard that it must beat; "": none
	talk        [2]float64 // the talk's own figures for the floods of SYNs and of ACKs, in Mpps; 0: none
}

// The guards that others are compared with.
const (
	limitTX     = "xdp-tx"
	limitDrop   = "xdp-drop"
	synproxyAt  = "synproxy/host"
	synproxyFor = "synproxy/router"
)

// synproxyGuards returns the rows. The talk has no figures for syncookies. Both programs of bpf/bench.c need the frame itself, which on veth is in
// the cache of the sender's core. For one byte the CPU does not wait: it predicts the branch, and continues with the next frame. A program with more
// work than the CPU can hold in flight, some hundred instructions, waits for each frame.
func synproxyGuards() []synproxyGuard {
	program := func(name string) rig.Guard { return rig.Guard{Program: name} }
	cookies := func(value string) rig.Guard { // 1: when the kernel's queue is full, 2: always
		return rig.Guard{Sysctls: map[string]string{"ipv4/tcp_syncookies": value}}
	}
	return []synproxyGuard{
		{name: limitTX, label: "an empty XDP_TX", guard: program(lab.TxAll), limit: SYNs, talk: [2]float64{10.8, 0}},
		{name: limitDrop, label: "an empty XDP_DROP", guard: program(lab.DropAll), limit: ACKs, talk: [2]float64{0, 24.5}},
		{name: "one-byte", label: "XDP_DROP after reading one byte", guard: program(rig.Touch), limit: ACKs},
		{name: "yardstick", label: "XDP_DROP after as much work as Floodwall's", guard: program(rig.Yardstick), limit: ACKs},
		{name: "syncookies=1", label: "kernel, tcp_syncookies=1", resets: true, guard: cookies("1")},
		{name: "syncookies=2", label: "kernel, tcp_syncookies=2", resets: true, guard: cookies("2")},
		{name: synproxyAt, label: "kernel SYNPROXY, host", guard: kernelSynproxy("INPUT"), talk: [2]float64{0.406, 0.9}},
		{name: "floodwall/host", label: "floodwall, host", guard: protect("host", "always"), rival: synproxyAt, talk: [2]float64{2.96, 5.6}},
		{name: synproxyFor, label: "kernel SYNPROXY, router", behind: true, guard: kernelSynproxy("FORWARD"), talk: [2]float64{0.406, 0.9}},
		{name: "floodwall/router", label: "floodwall, router", behind: true, guard: protect("router", "always"), rival: synproxyFor, talk: [2]float64{2.96, 5.6}},
	}
}

// synproxyRules contains the rules of the talk, for INPUT or FORWARD.
const synproxyRules = `*raw
-A PREROUTING -p tcp -m tcp --syn --dport 80 -j CT --notrack
COMMIT
*filter
-A %[1]s -p tcp -m tcp --dport 80 -m state --state INVALID,UNTRACKED -j SYNPROXY --sack-perm --timestamp --wscale 7 --mss 1460
-A %[1]s -m state --state INVALID -j DROP
COMMIT
`

// kernelSynproxy returns SYNPROXY in the setup of the talk.
func kernelSynproxy(chain string) rig.Guard {
	return rig.Guard{Sysctls: map[string]string{"netfilter/nf_conntrack_tcp_loose": "0"}, Iptables: fmt.Sprintf(synproxyRules, chain)}
}

// protect returns a policy that protects the server in a mode. The parameter when is "always", or "auto" for a mode that starts at a rate.
func protect(mode, when string) rig.Guard {
	return rig.Floodwall("auto", fmt.Sprintf("default: drop\nservices:\n  - {name: web, port: tcp/80, syn: {when: %s, mode: %s}}\n", when, mode))
}

// load describes the flood that is sent to the server in addition to the clients' connections.
type load struct {
	flood *Flood // nil: nothing
	pps   float64
}

// quiet is a load without a flood.
var quiet = load{}

// barFlood is the rate of floods that must not harm clients, in packets per second.
const barFlood = 1e6

// floodRates returns the rates of the curves, and of the SYN floods beside clients, in packets per second.
func floodRates(s *rig.Session) []float64 {
	return report.Choice(s.Quick, []float64{0.25e6, barFlood}, []float64{0.1e6, 0.25e6, 0.5e6, barFlood, 2e6})
}

// clientRates returns the rates of the SYN floods beside clients, in packets per second.
func clientRates(s *rig.Session) []float64 {
	return report.Choice(s.Quick, []float64{barFlood}, floodRates(s))
}

// loadsOf returns the loads of the clients of a guard. With a guard that is a limit, they have only the flood of this limit.
func loadsOf(s *rig.Session, g synproxyGuard) []load {
	if g.limit != nil {
		return []load{quiet, {g.limit, barFlood}}
	}
	loads := []load{quiet}
	for _, pps := range clientRates(s) {
		loads = append(loads, load{SYNs, pps})
	}
	return append(loads, load{ACKs, barFlood})
}

// name returns the load as a part of a result's name; label returns its text for people.
func (l load) name() string {
	if l.flood == nil {
		return "quiet"
	}
	return fmt.Sprintf("%s=%gMpps", l.flood.name, l.pps/1e6)
}

func (l load) label() string {
	if l.flood == nil {
		return "no flood"
	}
	return fmt.Sprintf("%g Mpps, %s", l.pps/1e6, l.flood.label)
}

// runSynproxy measures a web server under floods of SYNs and ACKs, like a talk did in 2021: the highest rates that its defences can handle, and the
// service for its clients.
func runSynproxy(ctx context.Context, s *rig.Session) error {
	err := rig.With(ctx, s, func(b *rig.Builder) error {
		tables := synproxyTables(b)
		defer func() { s.Outcome.Claims = synproxyClaims(tables) }()
		return s.Run(ctx, tables...)
	})
	for _, without := range []func(context.Context, *rig.Builder) error{bulk, churn} {
		if err == nil {
			err = rig.With(ctx, s, func(b *rig.Builder) error { return without(ctx, b) })
		}
	}
	return err
}

// synproxyTables hold the highest rates with each flood, and the clients' results.
func synproxyTables(b *rig.Builder) []*rig.Table {
	floods := []*rig.Table{floodTable(b.Session, SYNs), floodTable(b.Session, ACKs)}
	clients := clientsTable(b.Session)
	for _, g := range synproxyGuards() {
		at := &synproxySite{}
		setup := &rig.Setup{Label: g.label, Do: func(ctx context.Context) error { return at.prepare(ctx, b, g) }}
		for i, t := range floods {
			if f := tcpFloods[i]; g.limit == nil || g.limit == f {
				t.Rows = append(t.Rows, floodRow(b.Session, at, setup, g, f))
			}
		}
		for _, l := range loadsOf(b.Session, g) {
			clients.Rows = append(clients.Rows, clientsRow(b.Session, at, setup, g, l))
		}
	}
	return append(floods, clients)
}

// able is the unit of the highest rate that a guard would reach with a flood if its receive thread ran all the time.
const able = "able-Mpps"

// floodTable returns the highest rate of each guard with a flood.
func floodTable(s *rig.Session, f *Flood) *rig.Table {
	t := &rig.Table{
		Title: "synproxy: " + f.label + ", millions of " + f.figure, Doing: f.label + ", ", Notes: synproxyNotes(s),
		Results: []string{"Mpps", able, "of-limit", "x-rival", "able-of-limit"},
		Columns: append(rig.Articles("talk"), []rig.Column{
			{Head: "most", Unit: "Mpps", Show: rig.Digits(2, 1)}, {Head: "min .. max", Unit: "Mpps", Show: rig.Range(2, 1)},
			{Head: "of " + f.limit, Unit: "of-limit", Show: rig.Digits(2, 1)}, {Head: "x SYNPROXY", Unit: "x-rival", Show: rig.Digits(2, 1)},
			{Head: "able", Unit: able, Show: rig.Digits(2, 1)}, {Head: "of " + f.limit, Unit: "able-of-limit", Show: rig.Digits(2, 1)},
		}...),
		Ranking: &rig.Ranking{
			Title: "synproxy: " + f.label, Unit: "millions of " + f.figure, Figure: "Mpps", Per: 1, Limit: f.name + "/" + f.limit,
		},
		Marks: []rig.Mark{
			{Sign: "~", On: floodUnsteady, Note: fmt.Sprintf("~ unsteady: others had the receiving CPU, or the rounds differ by more than %.0f%%.", 100*report.UnsteadySpread)},
			{Sign: "^", On: func(r *rig.Row) bool { return 2*r.Figure("starved").Sum() > float64(len(r.Rounds)) },
				Note: "^ the attacker, with whom the answers arrive, was slower than the receive thread: a lower bound, see able."},
		},
	}
	other := func(name func(*rig.Row) string) func(*rig.Row) *rig.Row {
		return func(r *rig.Row) *rig.Row {
			if !(r.Figure("Mpps").Median() > 0) {
				return nil
			}
			return t.Other(r, f.name+"/"+name(r))
		}
	}
	limit, rival := other(func(*rig.Row) string { return f.limit }), other(func(r *rig.Row) string { return rivalOf(r.Kind) })
	t.Shares = []rig.Share{{Unit: "of-limit", Of: "Mpps", By: limit}, {Unit: "x-rival", Of: "Mpps", By: rival}, {Unit: "able-of-limit", Of: able, By: limit}}
	t.After = func(o *report.Outcome) {
		rateChart(o, f.label, "thousands of "+f.figure+" over the flood's rate", f.figure, floodRates(s), t.Rows, 1e3,
			func(r *rig.Row, pps float64) report.Samples { return r.Figure(rateUnit(pps)) })
	}
	return t
}

// floodUnsteady reports whether the figures of a flood are doubtful.
func floodUnsteady(r *rig.Row) bool {
	return r.Figure("disturbed").Longest() > 0 || r.Figure(able).Unsteady()
}

// guardOf returns the guard with a name.
func guardOf(name string) synproxyGuard {
	all := synproxyGuards()
	return all[slices.IndexFunc(all, func(g synproxyGuard) bool { return g.name == name })]
}

// rivalOf returns the name of the guard that a guard is compared with, in addition to the limit. The rate of the limit, as a multiple of SYNPROXY's
// rate, is the highest that any guard can reach here.
func rivalOf(guard string) string {
	g := guardOf(guard)
	return cmp.Or(g.rival, report.Choice(g.limit != nil, synproxyAt, ""))
}

// rateUnit returns the unit of the figure with a flood of this rate.
func rateUnit(pps float64) string { return fmt.Sprintf("at %g pps", pps) }

// floodRow returns a guard under a flood.
func floodRow(s *rig.Session, at *synproxySite, setup *rig.Setup, g synproxyGuard, f *Flood) *rig.Row {
	r := &rig.Row{Name: f.name + "/" + g.name, Label: g.label, Kind: g.name, Setup: setup}
	if talk := g.talk[slices.Index(tcpFloods, f)]; talk > 0 {
		r.Article = []string{fmt.Sprintf("%.2f", talk)}
	}
	if g.rival != "" {
		r.Goals = []rig.Goal{
			{Unit: "of-limit", What: "of " + f.limit, Bound: f.share}, {Unit: "x-rival", What: "x " + g.rival, Bound: f.times},
			{Unit: "able-of-limit", What: "able of " + f.limit, Bound: f.share},
		}
	}
	r.Take = func(ctx context.Context, round int) (rig.Reading, error) {
		return at.most(ctx, s, f, g.resets, uint64(round)+1)
	}
	return r
}

// synproxyNotes describe the choices of the experiment.
func synproxyNotes(s *rig.Session) []string {
	return []string{
		fmt.Sprintf("Talk: netdev 0x15, 2021, one core of a Xeon E5-2620 v4 with a ConnectX-5. Here: veth; CPU %d has the receive threads of", rig.ReceiverCPU),
		fmt.Sprintf("the host that is flooded and, after them, nginx; CPU %d has the attacker and the clients. Sources, ports and numbers are", rig.SourceCPU),
		"random; SYNs have Linux's options (74 bytes), ACKs timestamps (66 bytes). SYN-ACKs are counted where they arrive, at",
		"the attacker. An ACK is dropped that the host took and did not answer. The most is that at whatever rate of the flood.",
		"Able: the same for each second that the receive thread ran, which waits for the attacker when it is fast. The bars were",
		"set with an attacker who kept an empty program's thread a third busy: by what it is able to, they are harder.",
		"Kernel SYNPROXY is the talk's setup: SYNs untracked in raw, SYNPROXY for what is invalid or untracked, invalid dropped,",
		"tcp_loose=0. Floodwall protects the port at any rate (`when: always`).",
		"As much work as Floodwall's: the yardstick of `bench compare`, which takes about as long when the frame is in the cache.",
		"Here it is in the attacker's core: who does little goes on with the next frame meanwhile, who does more waits for it.",
		"An empty XDP_TX sends the attacker as much back, whose core has to take it: no row is a bound of the others, and one may have more.",
		fmt.Sprintf("Medians of %d rounds of %v, in which the rows take turns.", s.Rounds, s.Window),
	}
}

// rateChart adds a chart over the rate of a flood, and a table of the same figures, to the outcome. The chart has a line for each row that has all
// points.
func rateChart(
	o *report.Outcome, chart, table, unit string, rates []float64, rows []*rig.Row, per float64, at func(*rig.Row, float64) report.Samples,
) {
	var curves []report.Curve
	for _, r := range rows {
		one := report.Curve{Name: o.Name + "/" + r.Name, Chart: chart, Label: r.Label, X: "pps", Y: unit}
		for _, pps := range rates {
			if figures := at(r, pps); len(figures) > 0 {
				one.Points = append(one.Points, [2]float64{pps, figures.Median()})
			}
		}
		if len(one.Points) == len(rates) {
			curves = append(curves, one)
		}
	}
	var head []string
	for _, pps := range rates {
		head = append(head, report.Choice(pps == 0, "no flood", strconv.FormatFloat(pps/1e6, 'f', -1, 64)+" Mpps"))
	}
	o.Curves = append(o.Curves, curves...)
	o.Tables = append(o.Tables, report.CurveTable("synproxy: "+table, head, curves, per))
}

// synproxyClaims judges the talk's claims by the rows that were measured: ratios of the highest rates of guards. The talk's XDP program is a sample
// of the kernel, which no package contains; Floodwall is used instead.
func synproxyClaims(tables []*rig.Table) []report.Claim {
	syn := func(guard string) *rig.Row { return cmp.Or(tables[0].Find("syn/"+guard), &rig.Row{}) }
	ack := func(guard string) *rig.Row { return cmp.Or(tables[1].Find("ack/"+guard), &rig.Row{}) }
	judge := func(text string, talk float64, of, by *rig.Row, least, most float64, rule string) report.Claim {
		return ratioClaim(report.OpenClaim(text, report.TimesText(talk), rule), of, by, "Mpps", least, most, floodUnsteady)
	}
	return []report.Claim{
		judge("with XDP, 7.3 times as many SYNs are answered as by SYNPROXY", 2.96/0.406,
			syn("floodwall/host"), syn(synproxyAt), 2.96/0.406, math.Inf(1),
			"Floodwall, in place of the talk's XDP program, answers at least so many times as many"),
		judge("with XDP, 6.2 times as many ACKs are dropped as by SYNPROXY", 5.6/0.9,
			ack("floodwall/host"), ack(synproxyAt), 5.6/0.9, math.Inf(1),
			"Floodwall, in place of the talk's XDP program, drops at least so many times as many"),
		judge("SYNPROXY is far from the limit", 0.406/10.8,
			syn(synproxyAt), syn(limitTX), 0, 0.1,
			"it answers at most a tenth of the SYNs that an empty XDP_TX returns"),
		judge("SYNPROXY drops ACKs faster than it answers SYNs", 0.9/0.406,
			ack(synproxyAt), syn(synproxyAt), 1.3, 4,
			"1.3 to 4 times as many ACKs a second"),
		judge("dropping can be 2.3 times as fast as sending back", 24.5/10.8,
			ack(limitDrop), syn(limitTX), 1.3, 4,
			"an empty XDP_DROP takes 1.3 to 4 times what an empty XDP_TX does"),
	}
}
