// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// outgoing measures the effect of a firewall on a host's own requests: a download over one connection, and short requests on a connection each.
func outgoing(ctx context.Context, b *rig.Builder) error { return b.Run(ctx, outTable(b)) }

// outBar is the least share of the download and of the requests, compared with a program that passes everything.
const outBar = 0.98

// outGuards returns the rows: the guards that the answers pass.
func outGuards() []guardRow {
	all := []guardRow{{name: bulkOpen, label: "no firewall"}, {bulkPass, "empty XDP_PASS", rig.Guard{Program: lab.PassAll}}}
	for _, target := range places {
		all = append(all, guardRow{"floodwall/" + target, "floodwall, " + target, rig.Floodwall(target, fmt.Sprintf(passServices, ""))})
	}
	return append(all,
		guardRow{"nft/conntrack", "nft: ct state established", passNft(false, "", "ct state established,related accept\n")},
		guardRow{"iptables/conntrack", "iptables: ctstate ESTABLISHED", passIptables(false)})
}

// outTable returns the rows, and how their figures are published.
func outTable(b *rig.Builder) *rig.Table {
	t := &rig.Table{
		Title: "pass: what a host asks for", Doing: "download and requests, ",
		Results: []string{
			"MB/s", "able-MB/s", "requests/s", "p99-ns", "of-open", "of-xdp-pass", "able-of-xdp-pass", "requests-of-open", "requests-of-xdp-pass",
		},
		Columns: []rig.Column{
			{Head: "MB/s", Unit: "MB/s", Show: rig.Digits(0, 1)}, {Head: "of no firewall", Unit: "of-open", Show: rig.Digits(3, 1)},
			{Head: "of XDP_PASS", Unit: "of-xdp-pass", Show: rig.Digits(3, 1)}, {Head: "able", Unit: "able-MB/s", Show: rig.Digits(0, 1)},
			{Head: "of XDP_PASS", Unit: "able-of-xdp-pass", Show: rig.Digits(3, 1)}, {Head: "requests/s", Unit: "requests/s", Show: rig.Digits(0, 1)},
			{Head: "of no firewall", Unit: "requests-of-open", Show: rig.Digits(3, 1)},
			{Head: "of XDP_PASS", Unit: "requests-of-xdp-pass", Show: rig.Digits(3, 1)}, {Head: "p99 us", Unit: "p99-ns", Show: rig.Digits(0, 1e3)},
		},
		Notes: []string{
			fmt.Sprintf("A download of %d MB over one connection, and %s requests, one after another, a connection each. The host drops by default,",
				bulkBytes(b.Session)>>20, report.CountText(outRequests(b.Session))),
			fmt.Sprintf("and has no rule for answers. CPU %d has the host, CPU %d the server. Able: bytes per second of the time of the CPU that has most", rig.ReceiverCPU, rig.SourceCPU),
			"to do, which others on the machine hardly lengthen. The bar is for the share of an empty program: for any program veth copies",
			"frames, and does not for none.",
			fmt.Sprintf("Medians of %d rounds, in which the rows take turns; shares are of the same round.", b.Rounds),
		},
	}
	by := func(name string) func(*rig.Row) *rig.Row {
		return func(r *rig.Row) *rig.Row { return t.Other(r, "out/"+name) }
	}
	t.Shares = []rig.Share{
		{Unit: "of-open", Of: "MB/s", By: by(bulkOpen)}, {Unit: "of-xdp-pass", Of: "MB/s", By: by(bulkPass)},
		{Unit: "able-of-xdp-pass", Of: "able-MB/s", By: by(bulkPass)},
		{Unit: "requests-of-open", Of: "requests/s", By: by(bulkOpen)}, {Unit: "requests-of-xdp-pass", Of: "requests/s", By: by(bulkPass)},
	}
	for _, g := range outGuards() {
		var at *rig.Site
		r := &rig.Row{Name: "out/" + g.name, Label: g.label, Take: func(ctx context.Context, _ int) (rig.Reading, error) { return downloadAndRequests(ctx, at, b.Session) }}
		r.Setup = &rig.Setup{Label: g.label, Do: func(ctx context.Context) (err error) {
			at, err = askingSite(ctx, b, g.guard)
			return err
		}}
		if g.name == "floodwall/xdp" {
			for _, unit := range []string{"able-of-xdp-pass", "requests-of-xdp-pass"} {
				r.Goals = append(r.Goals, rig.Goal{Unit: unit, What: unit, Bound: outBar})
			}
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}

// outServer is the server that the host sends requests to.
var outServer = netip.MustParseAddrPort("10.0.0.1:80")

// outAnswer is the length of the server's answer in bytes.
const outAnswer = len("here\n")

// outRequests returns the number of requests of a round.
func outRequests(s *rig.Session) int { return report.Choice(s.Quick, 1000, 10_000) }

// askingSite returns a host with a guard, and with a server at the other end of its link.
func askingSite(ctx context.Context, b *rig.Builder, g rig.Guard) (*rig.Site, error) {
	b.Sites++
	out := rig.OtherEnd
	out.Queue = true // without a queue, segments of a burst that find no place are lost
	at, err := rig.ConnectSite(b.Lab, b.Sites, out, rig.ServerEnd)
	if err != nil {
		return nil, err
	}
	server, err := rig.StartPlainNginx(ctx, at.Out.Host, rig.SourceCPU, outServer)
	if err != nil {
		return nil, err
	}
	b.Owned = append(b.Owned, server.Close)
	return at, b.Guard(ctx, at, g)
}

// downloadAndRequests makes a download, and then sends the requests.
func downloadAndRequests(ctx context.Context, at *rig.Site, session *rig.Session) (rig.Reading, error) {
	path := &streamPath{
		from: at.Server, to: at.Out.Host, at: netip.AddrPortFrom(outServer.Addr(), 8080), cpus: [2]int{rig.ReceiverCPU, rig.SourceCPU},
		devices: [2][]*lab.Device{{at.In}, {at.Out}},
	}
	read, err := path.read(ctx, true, bulkBytes(session))
	if err != nil {
		return nil, err
	}
	times, err := lab.Serial(ctx, lab.SerialOptions{
		Host: at.Server, Server: outServer, Body: outAnswer, Requests: outRequests(session), Warmup: warmup, CPU: rig.ReceiverCPU, Urgent: true,
	})
	whole := times.Whole.Latency()
	read["requests/s"], read["p99-ns"] = float64(time.Second)/float64(whole.Mean), float64(whole.P99)
	return read, err
}

// untuned measures the effect of a firewall on the throughput of one connection on a plain veth with the kernel's default offloads.
func untuned(ctx context.Context, b *rig.Builder) error { return b.Run(ctx, untunedTable(b)) }

// untunedTC is the name of the row in mode tc. Its least shares are of no firewall, and of a program at tc that only passes.
const (
	untunedTC = "floodwall/xdp/tc"
	openBar   = 0.95
	tcPassBar = 0.98
)

// untunedGuards returns the rows: the guards that segments pass on their way into the host. The connection's port is among its services.
func untunedGuards() []guardRow {
	own := func(o control.ApplyOptions) rig.Guard {
		return rig.Guard{Policy: fmt.Sprintf(passServices, ", {name: web, port: tcp/80}"), Options: o}
	}
	return []guardRow{
		{name: bulkOpen, label: "no firewall"},
		tcPass(""),
		{bulkPass, "empty XDP_PASS", rig.Guard{Program: lab.PassAll}},
		{untunedTC, "floodwall, xdp, tc", own(rig.TargetOptions("tc"))},
		{"floodwall/xdp/native", "floodwall, xdp, native", own(control.ApplyOptions{Target: plan.TargetXDP, Mode: datapath.Native})},
		{"floodwall/xdp/generic", "floodwall, xdp, generic", own(control.ApplyOptions{Target: plan.TargetXDP, Mode: datapath.Generic})},
		{"floodwall/nftables", "floodwall, nftables", own(control.ApplyOptions{Target: plan.TargetNftables})},
		{"nft/conntrack", "nft: ct state established", passNft(false, "", "ct state established,related accept\ntcp dport 80 accept\n")},
	}
}

// untunedTable returns the rows, and how their figures are published. The two directions of a guard share a line.
func untunedTable(b *rig.Builder) *rig.Table {
	t := &rig.Table{
		Title: "pass: bulk through a plain veth, with the kernel's own offloads", Doing: "bulk on a plain veth, ",
		Results: []string{"MB/s", "of-open", "of-tc-pass"},
		Notes: []string{
			fmt.Sprintf("One connection, %d MB each way, as in a container or on a virtual bridge that nobody has tuned: segments of up to 64 kB come whole.",
				bulkBytes(b.Session)>>20),
			"An XDP program on veth costs that: the kernel segments and copies them. Other tables have offloads off at both ends, in all rows.",
			"The remedy is `--mode tc`, or `--target nftables`.",
			fmt.Sprintf("Medians of %d rounds, in which the rows take turns; shares are of the same round.", b.Rounds),
		},
	}
	by := func(name string) func(*rig.Row) *rig.Row {
		return func(r *rig.Row) *rig.Row { return t.Other(r, "untuned/"+r.Load+"/"+name) }
	}
	t.Shares = []rig.Share{{Unit: "of-open", Of: "MB/s", By: by(bulkOpen)}, {Unit: "of-tc-pass", Of: "MB/s", By: by(bulkTC)}}
	for i, way := range bulkWays {
		t.Columns = append(t.Columns, rig.Column{Head: []string{"into the host, MB/s", "out of it, MB/s"}[i], Unit: "MB/s", Show: rig.Digits(0, 1), Load: way.name},
			rig.Column{Head: "of no firewall", Unit: "of-open", Show: rig.Digits(3, 1), Load: way.name},
			rig.Column{Head: "of the tc program", Unit: "of-tc-pass", Show: rig.Digits(3, 1), Load: way.name})
	}
	for _, g := range untunedGuards() {
		var at *rig.Site
		setup := &rig.Setup{Label: g.label, Do: func(ctx context.Context) (err error) {
			b.Sites++
			plain := lab.EndOptions{Untuned: true}
			if at, err = rig.ConnectSite(b.Lab, b.Sites, plain, plain); err != nil {
				return err
			}
			return b.Guard(ctx, at, g.guard)
		}}
		for _, way := range bulkWays {
			r := &rig.Row{Name: "untuned/" + way.name + "/" + g.name, Label: g.label, Load: way.name, Line: g.name, Setup: setup}
			r.Take = func(ctx context.Context, _ int) (rig.Reading, error) {
				path := &streamPath{from: at.Out.Host, to: at.Server, at: netip.AddrPortFrom(rig.Server4, 80), cpus: [2]int{rig.SourceCPU, rig.ReceiverCPU}}
				return path.read(ctx, way.back, bulkBytes(b.Session))
			}
			if g.name == untunedTC {
				r.Goals = []rig.Goal{{Unit: "of-open", What: "of-open", Bound: openBar}, {Unit: "of-tc-pass", What: "of-tc-pass", Bound: tcPassBar}}
			}
			t.Rows = append(t.Rows, r)
		}
	}
	return t
}
