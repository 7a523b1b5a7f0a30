// This file is the experiment of that name: what a packet costs that passes, and what a firewall leaves of what a host asks for, and of bulk.

package experiment

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// runPass measures packets that pass: one by one on the way to a socket, in a download and requests that begin at the host, and in bulk on a
// device that nobody has tuned.
func runPass(ctx context.Context, s *rig.Session) error {
	for _, part := range []func(context.Context, *rig.Session) error{arriving, outgoing, untuned} {
		if err := part(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// arriving measures what a packet costs that passes to a socket, or on to another host.
func arriving(ctx context.Context, s *rig.Session) error {
	for _, behind := range []bool{false, true} {
		err := rig.InLab(ctx, func(l *lab.Lab) error {
			b := &passBuilder{Builder: rig.Builder{Session: s, Lab: l}, behind: behind}
			defer b.Close()
			b.Table.Title = "pass: 64-byte UDP packets of one flow, to a socket of this host"
			if behind {
				b.Table.Title = "pass: 64-byte UDP packets of one flow, forwarded to another host"
			}
			b.Table.By, b.Table.Notes = "of-no-firewall", slices.Clone(passNotes)
			for _, c := range passCases(behind) {
				if err := b.add(ctx, c); err != nil {
					return fmt.Errorf("%s: %w", c.label, err)
				}
			}
			return b.Table.Measure(ctx, s)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// passNotes say what is measured.
var passNotes = []string{
	"The receive thread's own time per packet, up to the socket, which nobody reads, or to the next host. Reply: the flow began",
	"inside, and the policy has no rule for it. Cost: time per packet above that of no firewall. For any XDP program veth copies",
	"frames and builds new ones for the network stack, which the row of an empty program shows; a network card has no such copy.",
}

// passCase is a row: what packets of the flow pass.
type passCase struct {
	name, label    string
	policy, target string // of Floodwall
	install        func(context.Context, *passSite) error
}

// The policies, without devices. None of the services is the flow's, unless one is.
const (
	passServices    = "default: drop\nservices: [{name: ssh, port: tcp/22}%s]\n"
	passEstablished = "default: drop\nreplies: drop\nrules: [{name: answers, state: established, then: pass}]\n"
)

// passCases are the rows for packets to this host, or to one behind it.
func passCases(behind bool) []passCase {
	name := "host/"
	if behind {
		name = "router/"
	}
	cases := []passCase{
		{name: name + "open", label: "no firewall", install: func(context.Context, *passSite) error { return nil }},
		{name: name + "xdp-pass", label: "empty XDP_PASS", install: attachPass},
	}
	service := fmt.Sprintf(passServices, ", "+passService)
	for _, target := range targets {
		if !behind {
			cases = append(cases, passCase{
				name: name + "floodwall/" + target + "/service", label: "floodwall, " + target + ": of a service", policy: service, target: target,
			})
		}
		cases = append(cases, passCase{
			name: name + "floodwall/" + target + "/reply", label: "floodwall, " + target + ": a reply", policy: fmt.Sprintf(passServices, ""), target: target,
		})
	}
	cases = append(cases, passCase{
		name: name + "floodwall/established", label: "floodwall, state: established, at filter", policy: passEstablished, target: "xdp",
	}, passCase{
		name: name + "nft/conntrack", label: "nft: ct state established", install: passNft,
	}, passCase{
		name: name + "iptables/conntrack", label: "iptables: ctstate ESTABLISHED", install: passIptables,
	})
	if behind {
		cases = append(cases, passCase{name: name + "nft/flowtable", label: "nft: a flowtable", install: passFlowtable})
	}
	return cases
}

// The flow: a host asks from one port of its own, and another answers.
const (
	passOwn     = 40_000
	passOther   = 4000
	passService = "{name: sink, port: udp/40000}"
)

// passBuilder makes a table of packets that pass.
type passBuilder struct {
	rig.Builder
	behind bool
}

// add adds a row. The first one is what the others are compared with.
func (b *passBuilder) add(ctx context.Context, c passCase) error {
	row := &rig.Rate{Name: c.name, Label: c.label}
	switch {
	case b.Table.Base == nil:
		b.Table.Base = row
	case !b.Wants(c.name):
		return nil
	}
	b.Steps.Show("installing %s", c.label)
	at, err := b.site()
	if err != nil {
		return err
	}
	if row.Missing, err = rig.Tolerate(b.install(ctx, at, c)); err != nil {
		return err
	}
	row.Flows, row.Subject = []lab.Flow{at.flow}, rig.Subject{Site: at.Site}
	b.Add(row)
	if row.Missing != "" {
		return nil
	}
	return at.begin(ctx)
}

func (b *passBuilder) install(ctx context.Context, at *passSite, c passCase) error {
	if c.install != nil {
		return c.install(ctx, at)
	}
	_, err := b.Hold(ctx, at.Site, c.policy, c.target)
	return err
}

// passSite is a site with a flow to a socket of its host, or of one behind it.
type passSite struct {
	sinkSite
	inner *lab.Device // towards the host behind; nil: there is none
	outer *lab.Device // of that host
	other net.PacketConn
	flow  lab.Flow
}

// The link to the host behind.
var (
	passInside = netip.MustParseAddr("10.2.0.2")
	passRouter = netip.MustParseAddr("10.2.0.1")
)

// udpForget is for how many seconds conntrack keeps the flow: longer than a round.
const udpForget = "600"

func (b *passBuilder) site() (s *passSite, err error) {
	at, err := b.NewSite()
	if err != nil {
		return nil, err
	}
	s = &passSite{sinkSite: sinkSite{Site: at}}
	if err := at.Server.Sysctl("netfilter/nf_conntrack_udp_timeout", udpForget); err != nil {
		return nil, err
	}
	own, host := rig.Server4, at.Server
	if b.behind {
		own = passInside
		if host, err = s.connectInside(b.Sites); err != nil {
			return nil, err
		}
	}
	if s.sink, err = openSink(&b.Builder, host, netip.AddrPortFrom(own, passOwn)); err != nil {
		return nil, err
	}
	other := netip.AddrPortFrom(at.Out.Addrs[0].Addr(), passOther)
	if s.other, err = openSink(&b.Builder, at.Out.Host, other); err != nil {
		return nil, err
	}
	s.flow = lab.Flow{From: lab.Addr(other.Addr()), To: lab.Addr(own), SPort: lab.Port(passOther), DPort: lab.Port(passOwn)}
	return s, nil
}

// connectInside puts a host behind the site's. The receive thread there has its turn on the same CPU when the router's sleeps.
func (s *passSite) connectInside(n int) (*lab.Host, error) {
	host, err := s.Lab.Host(fmt.Sprintf("inside%d", n))
	if err != nil {
		return nil, err
	}
	if err := s.Server.Router(); err != nil {
		return nil, err
	}
	end := lab.EndOptions{CPU: lab.OnCPU(rig.ReceiverCPU), Urgent: true}
	inner, outer, err := s.Lab.Connect(s.Server, host, lab.LinkOptions{A: firstEnd(end, passRouter), B: firstEnd(end, passInside)})
	if err != nil {
		return nil, err
	}
	s.inner, s.outer = inner, outer
	if err := s.Out.Host.Route(netip.PrefixFrom(passInside, 32), rig.Server4, s.Out); err != nil {
		return nil, err
	}
	return host, host.Route(netip.MustParsePrefix("0.0.0.0/0"), passRouter, outer)
}

// begin has the flow begin inside, and then has all packets of it pass.
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
	// Its socket would have the CPU most of the time.
	_, err := s.Lab.NewSink(s.outer, lab.DropAll)
	return err
}

// attachPass attaches an empty program.
func attachPass(_ context.Context, at *passSite) error {
	p, err := rig.LoadInstructions("pass", asm.Mov.Imm(asm.R0, rig.XDPPass), asm.Return())
	if err != nil {
		return err
	}
	defer p.Close()
	_, err = at.Lab.Attach(at.In, p) // until the lab ends
	return err
}
