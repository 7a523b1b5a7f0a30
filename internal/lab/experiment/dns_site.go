package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// dnsSite is a resolver with two wires, as of two uplinks: the clients' queries come on one, the flood on the other, where
// what it makes the resolver send to others leaves. On a common wire, a query is lost whenever the flood fills the 256
// places of its queue (kernel drivers/net/veth.c, VETH_RING_SIZE), which at 2 Mpps is after an eighth of a millisecond in
// which the CPU did something else. No firewall can help there, and network cards have up to some thousand places. The
// two meet where the firewall is: one CPU receives both, the clients' wire first whenever something is there, as it would
// after at most 64 packets of the flood if interrupts served the two in turn.
type dnsSite struct {
	*rig.Site
	clients *lab.Device // of their host
	victim  rig.LoadedPeer
}

// dnsNewSite builds another site, whose resolver ends with the builder.
func dnsNewSite(ctx context.Context, b *rig.Builder, g guard) (s *dnsSite, err error) {
	b.Sites++
	s = &dnsSite{}
	if s.Site, err = rig.ConnectSite(b.Lab, b.Sites, rig.OtherEnd, rig.ServerEnd); err != nil {
		return nil, err
	}
	if err := s.connectClients(ctx, b.Sites); err != nil {
		return nil, err
	}
	for _, half := range []string{"0.0.0.0/1", "128.0.0.0/1"} {
		if err := s.Server.Route(netip.MustParsePrefix(half), s.Out.Addrs[0].Addr(), s.In); err != nil {
			return nil, err
		}
	}
	if err := watchVictim(b, s); err != nil {
		return nil, err
	}
	r, err := startResolver(ctx, s.Server, g.conf)
	if err != nil {
		return nil, err
	}
	b.Owned = append(b.Owned, r.close)
	if g.nft != "" {
		if _, _, err := rig.RunTool(ctx, s.Server, strings.NewReader(g.nft), "nft", "-f", "-"); err != nil {
			return nil, err
		}
	}
	if g.policy == "" {
		return s, nil
	}
	_, err = b.Hold(ctx, s.Site, g.policy, "xdp")
	return s, err
}

// connectClients gives the n-th site the clients' host and wire.
func (s *dnsSite) connectClients(ctx context.Context, n int) error {
	host, err := s.Lab.Host(fmt.Sprintf("clients%d", n))
	if err != nil {
		return err
	}
	out, in := rig.OtherEnd, rig.ServerEnd
	out.First, in.First = true, true
	out.Addrs, in.Addrs = []netip.Prefix{netip.PrefixFrom(rig.ClientsAddr, 24)}, []netip.Prefix{netip.PrefixFrom(rig.ForClientsAddr, 24)}
	end, wire, err := s.Lab.Connect(host, s.Server, lab.LinkOptions{A: out, B: in})
	if err != nil {
		return err
	}
	s.clients, s.More = end, []*lab.Device{wire}
	if err := s.Believe(wire.Name); err != nil {
		return err
	}
	if err := host.Route(netip.PrefixFrom(rig.Server4, 32), rig.ForClientsAddr, end); err != nil {
		return err
	}
	if err := s.Server.Route(rig.ClientNetwork, rig.ClientsAddr, wire); err != nil {
		return err
	}
	_, _, err = rig.RunTool(ctx, host, strings.NewReader(clientRules()), "nft", "-f", "-")
	return err
}

// watchVictim counts what arrives at the other ends of the resolver's wires.
func watchVictim(b *rig.Builder, s *dnsSite) (err error) {
	if s.victim, err = loadVictim(); err != nil {
		return err
	}
	b.Owned = append(b.Owned, s.victim.Counts.Close)
	b.Own(s.victim.Program)
	for _, d := range []*lab.Device{s.Out, s.clients} {
		if _, err := b.Lab.Attach(d, s.victim.Program); err != nil {
			return err
		}
	}
	return nil
}
