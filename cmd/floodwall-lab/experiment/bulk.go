// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
)

// bulkWays are the directions of a transfer. Bytes to the server pass XDP. If the bytes go to the client, XDP sees only the acknowledgements.
var bulkWays = []struct {
	name, label string
	back        bool
}{{"to-server", "to the server", false}, {"to-client", "to the client", true}}

// bulkBar is the minimum share for the host mode. In this mode, the kernel's stack handles the connection as it was negotiated.
const bulkBar = 0.98

// The names of rows with which other rows are compared.
const (
	bulkOpen = "open"
	bulkPass = "xdp-pass"
	bulkTC   = "tc-pass"
)

// bulkUnprotected is a policy that passes the connection.
var bulkUnprotected = rig.Floodwall("xdp", "default: drop\nservices:\n  - {name: web, port: tcp/80}\n")

// bulkGuards returns the rows of a mode.
func bulkGuards(mode, chain string) []synproxyGuard {
	return []synproxyGuard{
		{name: bulkOpen, label: "nothing"},
		{name: bulkPass, label: "XDP_PASS", guard: rig.Guard{Program: lab.PassAll}},
		{name: "synproxy", label: "kernel SYNPROXY", guard: kernelSynproxy(chain)},
		{name: "floodwall-off", label: "floodwall, syn: off", guard: bulkUnprotected},
		{name: "floodwall", label: "floodwall", guard: protect(mode, "always")},
	}
}

// protectModes are the places of the server: on the protecting host, or behind it.
var protectModes = []struct {
	mode, chain string
	behind      bool
}{{"host", "INPUT", false}, {"router", "FORWARD", true}}

// bulkBytes returns the number of bytes that a connection transfers.
func bulkBytes(s *rig.Session) int64 { return report.Choice[int64](s.Quick, 64<<20, 1<<30) }

// bulk measures the throughput of one established connection with each protection, without a flood.
func bulk(ctx context.Context, b *rig.Builder) error { return b.Run(ctx, bulkTables(b)...) }

// bulkTables returns a table for each direction.
func bulkTables(b *rig.Builder) (tables []*rig.Table) {
	for _, way := range bulkWays {
		tables = append(tables, bulkTable(b.Session, "bulk/"+way.name+"/", way.label))
	}
	for _, m := range protectModes {
		for _, g := range bulkGuards(m.mode, m.chain) {
			g.behind = m.behind
			at := &synproxySite{}
			setup := &rig.Setup{Label: g.label + ", " + m.mode, Do: func(ctx context.Context) error { return at.prepareBulk(ctx, b, g) }}
			for i, way := range bulkWays {
				r := &rig.Row{Name: fmt.Sprintf("bulk/%s/%s/%s", way.name, g.name, m.mode), Label: setup.Label, Kind: m.mode, Setup: setup}
				r.Take = func(ctx context.Context, _ int) (rig.Reading, error) {
					return at.bulkPath().read(ctx, way.back, bulkBytes(b.Session))
				}
				if g.name == "floodwall" && m.mode == "host" {
					r.Goals = []rig.Goal{{Unit: "of-xdp-pass", What: "of-xdp-pass", Bound: bulkBar}, {Unit: "able-of-xdp-pass", What: "able-of-xdp-pass", Bound: bulkBar}}
				}
				tables[i].Rows = append(tables[i].Rows, r)
			}
		}
	}
	return tables
}

// bulkTable returns the table of a direction. The names of its rows start with prefix.
func bulkTable(s *rig.Session, prefix, way string) *rig.Table {
	t := &rig.Table{
		Title: "synproxy: bulk transfer " + way + ", MB/s", Doing: "bulk transfer, ",
		Results: []string{"MB/s", "of-open", "of-xdp-pass", "able-MB/s", "able-of-xdp-pass"},
		Columns: []rig.Column{
			{Head: "moved", Unit: "MB/s", Show: rig.Digits(0, 1)}, {Head: "of nothing", Unit: "of-open", Show: rig.Digits(3, 1)},
			{Head: "of XDP_PASS", Unit: "of-xdp-pass", Show: rig.Digits(3, 1)}, {Head: "able", Unit: "able-MB/s", Show: rig.Digits(0, 1)},
			{Head: "of XDP_PASS", Unit: "able-of-xdp-pass", Show: rig.Digits(3, 1)},
		},
		Marks: []rig.Mark{rig.Unsteady("MB/s")},
		Notes: []string{
			fmt.Sprintf("One connection that stands, %d MB each way, no flood. CPU %d has the client and its receive thread, CPU %d the",
				bulkBytes(s)>>20, rig.SourceCPU, rig.ReceiverCPU),
			"server and all others. Bytes to the server pass XDP, frame by frame; of those to the client, the acknowledgements do.",
			"Able: bytes per second of the time of the CPU that has most to do, which others on the machine hardly lengthen.",
			"The bar is for the share of an empty program, of what was moved and of what it is able to: for any program veth copies",
			"frames, and does not for none. Ends compute checksums and segment in software, as for XDP they have to, in all rows.",
			fmt.Sprintf("Medians of %d rounds, in which the rows take turns; shares are of the same round.", s.Rounds),
		},
	}
	kind := func(name string) func(*rig.Row) *rig.Row {
		return func(r *rig.Row) *rig.Row { return t.Other(r, prefix+name+"/"+r.Kind) }
	}
	t.Shares = []rig.Share{
		{Unit: "of-open", Of: "MB/s", By: kind(bulkOpen)}, {Unit: "of-xdp-pass", Of: "MB/s", By: kind(bulkPass)},
		{Unit: "able-of-xdp-pass", Of: "able-MB/s", By: kind(bulkPass)},
	}
	return t
}

// prepareBulk builds a site with a guard. The client is at the attacker's place.
func (s *synproxySite) prepareBulk(ctx context.Context, b *rig.Builder, g synproxyGuard) (err error) {
	out := rig.OtherEnd
	out.Queue = true // without a queue, segments of a burst that find no place are lost
	s.floodedSite, s.web = &floodedSite{}, netip.AddrPortFrom(rig.Server4, 80)
	if s.Site, err = b.Connect(out, rig.ServerEnd); err != nil {
		return err
	}
	// If a program sends a packet back by XDP_TX, the packet arrives only if the other end also has a program.
	if _, err := b.Lab.NewSink(s.Out, lab.PassAll); err != nil {
		return err
	}
	if g.behind {
		if err := s.connectBackend(b.Sites); err != nil {
			return err
		}
	}
	return b.Guard(ctx, s.Site, g.guard)
}

// bulkPath returns the path from the client to the server.
func (s *synproxySite) bulkPath() *streamPath {
	return &streamPath{
		from: s.Out.Host, to: s.host(), at: s.web, cpus: [2]int{rig.SourceCPU, rig.ReceiverCPU},
		devices: [2][]*lab.Device{{s.Out}, append([]*lab.Device{s.In}, s.inner...)},
	}
}

// churnClients are the numbers of requests that run at the same time.
var churnClients = []int{1, 20, 200}

// churnPorts are the client's ports. They are so few that they are used again within seconds. churnTimeout is the usual timeout of load testers.
const (
	churnPorts   = "20000 29999"
	churnTimeout = 2 * time.Second
)

// churnBar is the minimum request rate with protection, as a share of the rate without protection.
const churnBar = 0.95

// churnGuards returns the rows of a mode. The others are compared with the first row.
func churnGuards(mode, chain string) []synproxyGuard {
	return []synproxyGuard{
		{name: "floodwall-off", label: "floodwall, syn: off", guard: bulkUnprotected},
		{name: "synproxy", label: "kernel SYNPROXY", guard: kernelSynproxy(chain)},
		{name: "floodwall-protect", label: "floodwall, syn: protect", guard: protect(mode, "auto")},
		{name: "floodwall-always", label: "floodwall, syn: always", guard: protect(mode, "always")},
	}
}

// churn measures the request rate with each protection, without a flood. The client opens a connection for each request, as a reverse proxy does.
func churn(ctx context.Context, b *rig.Builder) error { return b.Run(ctx, churnTable(b)) }

func churnTable(b *rig.Builder) *rig.Table {
	t := &rig.Table{
		Title: "synproxy: requests per second of one client, a connection for each", Doing: "connections of one client, ",
		Results: []string{"requests/s", "failed", "of-off"},
		Columns: []rig.Column{
			{Head: "at a time", Text: func(r *rig.Row) string { return r.Load }}, {Head: "requests/s", Unit: "requests/s", Show: rig.Digits(0, 1)},
			{Head: "of syn: off", Unit: "of-off", Show: rig.Digits(3, 1)},
			{Head: "failed", Unit: "failed", Show: func(s report.Samples) string { return fmt.Sprintf("%.0f", s.Sum()) }},
		},
		Notes: []string{
			fmt.Sprintf("No flood. The client has one address and 10,000 ports, and waits %v for an answer.", churnTimeout),
			fmt.Sprintf("Medians of %d rounds, in which the rows take turns; shares are of the same round.", b.Rounds),
		},
	}
	for _, m := range protectModes {
		for _, g := range churnGuards(m.mode, m.chain) {
			g.behind = m.behind
			at := &synproxySite{}
			setup := &rig.Setup{Label: g.label + ", " + m.mode, Do: func(ctx context.Context) error { return at.prepareChurn(ctx, b, g) }}
			for _, clients := range churnClients {
				r := &rig.Row{Name: fmt.Sprintf("churn/%s/%s/%d", g.name, m.mode, clients), Label: setup.Label, Load: fmt.Sprint(clients), Kind: m.mode, Setup: setup}
				r.Take = func(ctx context.Context, _ int) (rig.Reading, error) {
					sum, err := lab.Load(ctx, lab.LoadOptions{
						Host: at.clients.Host, Server: at.web, Connections: clients, Timeout: churnTimeout, Duration: visitTime(b.Session),
					})
					return rig.Reading{"requests/s": sum.Rate, "failed": float64(sum.Failed)}, err
				}
				if strings.HasPrefix(g.name, "floodwall-") && g.name != "floodwall-off" {
					r.Goals = []rig.Goal{{Unit: "of-off", What: "of-off", Bound: churnBar}, {Unit: "failed", What: "failed", Bound: 0, Most: true, Worst: true}}
				}
				t.Rows = append(t.Rows, r)
			}
		}
	}
	t.Shares = []rig.Share{{Unit: "of-off", Of: "requests/s", By: func(r *rig.Row) *rig.Row {
		return t.Other(r, fmt.Sprintf("churn/floodwall-off/%s/%s", r.Kind, r.Load))
	}}}
	return t
}

// prepareChurn builds a site with a guard.
func (s *synproxySite) prepareChurn(ctx context.Context, b *rig.Builder, g synproxyGuard) error {
	if err := s.prepare(ctx, b, g); err != nil {
		return err
	}
	return s.clients.Host.Sysctl("ipv4/ip_local_port_range", churnPorts)
}
