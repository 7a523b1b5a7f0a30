// SPDX-License-Identifier: Apache-2.0

// This file is the experiment pass. It measures the cost of a packet that passes, and the effect of a firewall on a host's own requests and on bulk
// transfers.

package experiment

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/lab"
)

// runPass measures packets that pass: single packets to a socket, a download and requests of the host, and a bulk transfer on a device with default
// settings.
func runPass(ctx context.Context, s *rig.Session) error {
	for _, part := range []func(context.Context, *rig.Builder) error{arriving(false), arriving(true), outgoing, untuned} {
		if err := rig.With(ctx, s, func(b *rig.Builder) error { return part(ctx, b) }); err != nil {
			return err
		}
	}
	return nil
}

// arriving measures the cost of a packet that passes to a socket, or to a host behind the firewall.
func arriving(behind bool) func(context.Context, *rig.Builder) error {
	return func(ctx context.Context, b *rig.Builder) error {
		b.Table.Title = "pass: 64-byte UDP packets of one flow, " + report.Choice(behind, "forwarded to another host", "to a socket of this host")
		b.Table.By, b.Table.Notes = "of-no-firewall", slices.Clone(passNotes)
		for _, g := range passGuards(behind) {
			if err := addPassing(ctx, b, g, behind); err != nil {
				return fmt.Errorf("%s: %w", g.label, err)
			}
		}
		return b.Table.Measure(ctx, b.Session)
	}
}

// passNotes describe the measurements.
var passNotes = []string{
	"The receive thread's own time per packet, up to the socket, which nobody reads, or to the next host. Reply: the flow began",
	"inside, and the policy has no rule for it. Cost: time per packet above that of no firewall. For any XDP program veth copies",
	"frames and builds new ones for the network stack, which the row of an empty program shows; a network card has no such copy.",
}

// The policies, without devices. None of the services has the flow's port, except where that is the case to measure.
const (
	passServices    = "default: drop\nservices: [{name: ssh, port: tcp/22}%s]\n"
	passEstablished = "default: drop\nreplies: drop\nrules: [{name: answers, state: established, then: pass}]\n"
)

// places are the places of a policy's program or rules.
var places = []string{"xdp", "tc", "nftables", "iptables"}

// tcPass returns a row of a program at tc that only passes.
func tcPass(prefix string) guardRow {
	return guardRow{prefix + bulkTC, "a tc program that passes", rig.Guard{TC: rig.PassTC}}
}

// passGuards returns the guards that packets pass on the way to this host, or to one behind it.
func passGuards(behind bool) []guardRow {
	name := report.Choice(behind, "router/", "host/")
	all := []guardRow{{name: name + "open", label: "no firewall"}, {name + "xdp-pass", "empty XDP_PASS", rig.Guard{Program: lab.PassAll}}, tcPass(name)}
	for _, target := range places {
		own := func(what, label, services string) {
			all = append(all, guardRow{
				name + "floodwall/" + target + "/" + what, "floodwall, " + target + ": " + label, rig.Floodwall(target, fmt.Sprintf(passServices, services)),
			})
		}
		if !behind {
			own("service", "of a service", ", "+passService)
		}
		own("reply", "a reply", "")
	}
	all = append(all,
		guardRow{name + "floodwall/established", "floodwall, state: established, at filter", rig.Floodwall("xdp", passEstablished)},
		guardRow{name + "nft/conntrack", "nft: ct state established", passNft(behind, "", "ct state established,related accept\n")},
		guardRow{name + "iptables/conntrack", "iptables: ctstate ESTABLISHED", passIptables(behind)})
	if behind {
		// Packets of flows that conntrack knows bypass the stack.
		table := fmt.Sprintf("flowtable fast {\nhook ingress priority filter; devices = { \"{in}\", %q };\n}\n", innerDevice)
		all = append(all, guardRow{
			name + "nft/flowtable", "nft: a flowtable", passNft(behind, table, "ct state established flow add @fast\nct state established,related accept\n"),
		})
	}
	return all
}

// passNft returns a filter of nft for packets to the host, or through it. It drops all packets that its rules do not accept. It accepts all packets of
// the host behind.
func passNft(behind bool, more, rules string) rig.Guard {
	chain := "input"
	if behind {
		chain, rules = "forward", rules+fmt.Sprintf("iifname %q accept\n", innerDevice)
	}
	return rig.Guard{Nft: fmt.Sprintf("table inet pass {\n%schain pass {\ntype filter hook %s priority filter; policy drop;\n%s}\n}\n", more, chain, rules)}
}

// passIptables accepts packets of connections that conntrack knows.
func passIptables(behind bool) rig.Guard {
	chain, inside := "INPUT", ""
	if behind {
		chain = "FORWARD"
		inside = "-A FORWARD -i " + innerDevice + " -j ACCEPT\n"
	}
	return rig.Guard{Iptables: fmt.Sprintf("*filter\n:%[1]s DROP\n-A %[1]s -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n", chain) + inside + "COMMIT\n"}
}

// The flow: a host sends from one port of its own, and another host answers.
const (
	passOwn     = 40_000
	passOther   = 4000
	passService = "{name: sink, port: udp/40000}"
)

// addPassing adds a row. The others are compared with the first one.
func addPassing(ctx context.Context, b *rig.Builder, g guardRow, behind bool) error {
	row := &rig.Row{Name: g.name, Label: g.label}
	switch {
	case b.Table.Base == nil:
		b.Table.Base = row
	case !b.Wants(g.name):
		return nil
	}
	b.Steps.Show("installing %s", g.label)
	at, err := newPassSite(b, behind)
	if err != nil {
		return err
	}
	if row.Missing, err = rig.Tolerate(b.Guard(ctx, at.Site, g.guard)); err != nil {
		return err
	}
	row.Flows, row.Subject = []lab.Flow{at.flow}, rig.Subject{Site: at.Site}
	b.Add(row)
	if row.Missing != "" {
		return nil
	}
	return at.begin(ctx)
}

// passSite is a site with a flow to a socket of its host, or of a host behind it.
type passSite struct {
	sinkSite
	outer *lab.Device // of the host behind; nil: there is none
	other net.PacketConn
	flow  lab.Flow
}

// udpForget is how long conntrack keeps the flow, in seconds: longer than a round.
const udpForget = "600"

func newPassSite(b *rig.Builder, behind bool) (s *passSite, err error) {
	at, err := b.NewSite()
	if err != nil {
		return nil, err
	}
	s = &passSite{sinkSite: sinkSite{Site: at}}
	if err := at.Server.Sysctl("netfilter/nf_conntrack_udp_timeout", udpForget); err != nil {
		return nil, err
	}
	own, host := rig.Server4, at.Server
	if behind {
		own = behindAddr
		end := lab.EndOptions{CPU: lab.OnCPU(rig.ReceiverCPU), Urgent: true} // the receive thread there runs while the router's sleeps
		if _, s.outer, err = connectBehind(at, b.Sites, end); err != nil {
			return nil, err
		}
		host = s.outer.Host
	}
	if s.sink, err = openSink(b, host, netip.AddrPortFrom(own, passOwn)); err != nil {
		return nil, err
	}
	other := netip.AddrPortFrom(at.Out.Addrs[0].Addr(), passOther)
	if s.other, err = openSink(b, at.Out.Host, other); err != nil {
		return nil, err
	}
	s.flow = lab.Flow{From: lab.Addr(other.Addr()), To: lab.Addr(own), SPort: lab.Port(passOther), DPort: lab.Port(passOwn)}
	return s, nil
}

// begin sends the flow's first packet from inside, and then checks that all packets of the flow pass.
func (s *passSite) begin(ctx context.Context) error {
	to := s.other.LocalAddr()
	if _, err := s.sink.WriteTo([]byte("begin"), to); err != nil {
		return err
	}
	if err := s.other.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	if _, _, err := s.other.ReadFrom(make([]byte, 64)); err != nil {
		return fmt.Errorf("nothing arrives of what leaves: %w", err)
	}
	if err := s.expect(ctx, s.flow, true); err != nil || s.outer == nil {
		return err
	}
	// A socket there would have the CPU most of the time.
	_, err := s.Lab.NewSink(s.outer, lab.DropAll)
	return err
}

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
	out := rig.OtherEnd
	out.Queue = true // without a queue, segments of a burst that find no place are lost
	at, err := b.Connect(out, rig.ServerEnd)
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
			plain := lab.EndOptions{Untuned: true}
			if at, err = b.Connect(plain, plain); err != nil {
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
