// SPDX-License-Identifier: Apache-2.0

// This file is the experiment calm. It measures the cost of a firewall while no flood comes, and how the host fares when a flood begins and ends.

package experiment

import (
	"context"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// The bars. Those for bulk are the bars of untuned.
const (
	calmRequestsBar = 0.98 // of the requests per second beside a tc program that only passes
	calmSlower      = 1.05 // multiple of their p99
	switchBar       = 300  // milliseconds from the first packet of a flood until XDP decides
	besideSlower    = 3    // multiple of the p99 without a flood
)

// calmKey is the value of the key xdp in rows whose program moves.
const calmKey = "{when: flooded, start: 20000/s, calm: 2s}"

// calmCase is a row: a guard, or Floodwall and its daemon.
type calmCase struct {
	name, label string
	guard       rig.Guard
	xdp         string  // the value of the key; "": the guard
	stage       int     // the position in a round
	pps         float64 // of a flood; 0: there is none
	take        func(*calmSite, context.Context, float64) (rig.Reading, error)
	goals       []rig.Goal
}

func calmCases() []*calmCase {
	least := func(unit string, bound float64) rig.Goal { return rig.Goal{Unit: unit, What: unit, Bound: bound} }
	most := func(unit string, bound float64) rig.Goal {
		return rig.Goal{Unit: unit, What: unit, Bound: bound, Most: true}
	}
	always := func(unit string, bound float64) rig.Goal {
		return rig.Goal{Unit: unit, What: unit, Bound: bound, Most: true, Worst: true}
	}
	rest := []rig.Goal{
		least("in-of-open", openBar), least("in-of-tc-pass", tcPassBar), least("out-of-open", openBar), least("out-of-tc-pass", tcPassBar),
		least("segments-of-open", tcPassBar), least("requests-of-tc-pass", calmRequestsBar), most("p99-of-tc-pass", calmSlower),
	}
	return []*calmCase{
		{name: bulkOpen, label: "no firewall", take: (*calmSite).calm},
		{name: bulkTC, label: "a tc program that passes", guard: rig.Guard{TC: rig.PassTC}, take: (*calmSite).calm},
		{name: "nft/conntrack", label: "nft: ct state established", take: (*calmSite).calm,
			guard: passNft(false, "", "ct state established,related accept\ntcp dport { 80, 8080 } accept\n")},
		{name: "always", label: "floodwall, xdp: always", xdp: "always", take: (*calmSite).calm},
		{name: "flooded/rest", label: "floodwall, xdp: flooded", xdp: calmKey, take: (*calmSite).calm, goals: rest},
		{name: "flooded/begins/slow", label: "- as 100 kpps begin", xdp: calmKey, stage: 1, pps: 100_000, take: (*calmSite).beginning,
			goals: []rig.Goal{always("switch-ms", switchBar)}},
		{name: "flooded/begins/fast", label: "- as 1 Mpps begin", xdp: calmKey, stage: 2, pps: barFlood, take: (*calmSite).beginning,
			goals: []rig.Goal{always("switch-ms", switchBar)}},
		{name: "flooded/lasts", label: "- beside 1 Mpps", xdp: calmKey, stage: 3, pps: barFlood, take: (*calmSite).beside,
			goals: []rig.Goal{most("p99-of-rest", besideSlower), always("failed", 0)}},
		{name: "flooded/after", label: "- after the floods", xdp: calmKey, stage: 4, take: (*calmSite).calm, goals: rest},
	}
}

// runCalm measures bulk transfers and requests of clients with each guard.
func runCalm(ctx context.Context, s *rig.Session) error {
	return rig.With(ctx, s, func(b *rig.Builder) error { return b.Run(ctx, calmTable(b)) })
}

// calmTable returns the rows, and how their figures are published.
func calmTable(b *rig.Builder) *rig.Table {
	t := &rig.Table{
		Title: "calm: a web server on a plain veth, until a flood begins", Doing: "bulk and requests, ",
		Results: []string{
			"in-MB/s", "in-of-open", "in-of-tc-pass", "out-MB/s", "out-of-open", "out-of-tc-pass", "requests/s", "requests-of-tc-pass", "p99-ns", "p99-of-tc-pass",
			"p99-of-rest", "failed", "cpu-s/GB", "segments/packet", "switch-ms", "receiver-busy",
		},
		Columns: []rig.Column{
			{Head: "in, MB/s", Unit: "in-MB/s", Show: rig.Digits(0, 1)}, {Head: "of none", Unit: "in-of-open", Show: rig.Digits(3, 1)},
			{Head: "of tc", Unit: "in-of-tc-pass", Show: rig.Digits(3, 1)},
			{Head: "out, MB/s", Unit: "out-MB/s", Show: rig.Digits(0, 1)}, {Head: "of none", Unit: "out-of-open", Show: rig.Digits(3, 1)},
			{Head: "of tc", Unit: "out-of-tc-pass", Show: rig.Digits(3, 1)},
			{Head: "requests/s", Unit: "requests/s", Show: rig.Digits(0, 1)}, {Head: "of tc", Unit: "requests-of-tc-pass", Show: rig.Digits(3, 1)},
			{Head: "p99 us", Unit: "p99-ns", Show: rig.Digits(0, 1e3)}, {Head: "of tc", Unit: "p99-of-tc-pass", Show: rig.Digits(2, 1)},
			{Head: "failed", Unit: "failed", Show: func(s report.Samples) string { return fmt.Sprintf("%.0f", s.Sum()) }},
			{Head: "CPU s/GB", Unit: "cpu-s/GB", Show: rig.Digits(2, 1)}, {Head: "segments", Unit: "segments/packet", Show: rig.Digits(1, 1)},
			{Head: "XDP after ms", Unit: "switch-ms", Show: rig.Worst(0, 1)}, {Head: "receiver busy", Unit: "receiver-busy", Show: rig.Percent},
		},
		Notes: []string{
			fmt.Sprintf("One connection, %d MB each way, then %s requests, a connection each, four at a time; as a flood begins and beside it %d MB and %s.",
				calmShort.bytes>>20, report.CountText(calmShort.requests), bulkBytes(b.Session)>>20, report.CountText(outRequests(b.Session))),
			"The clients' link is a plain veth with the kernel's own offloads. The flood comes by another link of the server, whose receive",
			fmt.Sprintf("thread goes before all else on CPU %d. Of tc: of the program at tc that passes. CPU: of both ends of the transfer into the server.", rig.ReceiverCPU),
			"Segments: of a packet that the server's IP got in it.",
			"XDP after: from the first packet of a flood to the last that XDP let through to tc; the most of the floods of a round. Receiver busy:",
			"the share of the time until XDP is in the list of programs in which the flood's receive thread ran. A flood begins with each",
			"figure, and ends with it; there the bulk's threads have the priority of the daemon, elsewhere one above all other programs.",
			fmt.Sprintf("Medians of %d rounds, in which the rows take turns; shares are of the same round.", b.Rounds),
		},
	}
	by := func(name string) func(*rig.Row) *rig.Row {
		return func(r *rig.Row) *rig.Row { return t.Other(r, name) }
	}
	for _, unit := range []string{"in-", "out-", "requests-", "p99-", "segments-"} {
		of := map[string]string{"requests-": "requests/s", "p99-": "p99-ns", "segments-": "segments/packet"}[unit]
		if of == "" {
			of = unit + "MB/s"
		}
		t.Shares = append(t.Shares, rig.Share{Unit: unit + "of-open", Of: of, By: by(bulkOpen)}, rig.Share{Unit: unit + "of-tc-pass", Of: of, By: by(bulkTC)},
			rig.Share{Unit: unit + "of-rest", Of: of, By: by("flooded/rest")})
	}
	sites := map[string]*calmSite{}
	for _, c := range calmCases() {
		group, _, _ := strings.Cut(c.name, "/")
		at := sites[group]
		if at == nil {
			at = &calmSite{session: b.Session}
			at.setup = &rig.Setup{Label: c.label, Do: func(ctx context.Context) error { return at.build(ctx, b, c) }}
			sites[group] = at
		}
		t.Rows = append(t.Rows, &rig.Row{Name: c.name, Label: c.label, Stage: c.stage, Setup: at.setup, Goals: c.goals,
			Take: func(ctx context.Context, _ int) (rig.Reading, error) { return c.take(at, ctx, c.pps) }})
	}
	return t
}
