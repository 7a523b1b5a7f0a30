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

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
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

// innerDevice is the name of the device towards the host behind. All packets from there are accepted.
const innerDevice = "inner"

// passNft returns a filter of nft for packets to the host, or through it. It drops all packets that its rules do not accept.
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
	row := &rig.Rate{Name: g.name, Label: g.label}
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

// The link to the host behind.
var (
	passInside = netip.MustParseAddr("10.2.0.2")
	passRouter = netip.MustParseAddr("10.2.0.1")
)

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
		own = passInside
		if host, err = s.connectInside(b.Sites); err != nil {
			return nil, err
		}
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

// connectInside adds a host behind the site's host. Its receive thread runs on the same CPU while the router's sleeps.
func (s *passSite) connectInside(n int) (*lab.Host, error) {
	host, err := s.Lab.Host(fmt.Sprintf("inside%d", n))
	if err != nil {
		return nil, err
	}
	if err := s.Server.Router(); err != nil {
		return nil, err
	}
	end := lab.EndOptions{CPU: lab.OnCPU(rig.ReceiverCPU), Urgent: true}
	inner := firstEnd(end, passRouter)
	inner.Name = innerDevice
	if _, s.outer, err = s.Lab.Connect(s.Server, host, lab.LinkOptions{A: inner, B: firstEnd(end, passInside)}); err != nil {
		return nil, err
	}
	if err := s.Out.Host.Route(netip.PrefixFrom(passInside, 32), rig.Server4, s.Out); err != nil {
		return nil, err
	}
	return host, host.Route(netip.MustParsePrefix("0.0.0.0/0"), passRouter, s.outer)
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
