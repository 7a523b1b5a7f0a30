package bench

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/floodwall/floodwall/internal/lab"
)

// dnsSite is a resolver with two wires, as of two uplinks: the clients' queries come on one, the flood on the other, where
// what it makes the resolver send to others leaves. On a common wire, a query is lost whenever the flood fills the 256
// places of its queue (kernel drivers/net/veth.c, VETH_RING_SIZE), which at 2 Mpps is after an eighth of a millisecond in
// which the CPU did something else. No firewall can help there, and network cards have up to some thousand places. The
// two meet where the firewall is: one CPU receives both, the clients' wire first whenever something is there, as it would
// after at most 64 packets of the flood if interrupts served the two in turn.
type dnsSite struct {
	*site
	clients *lab.Device // of their host
	victim  peer
}

// dnsSite builds another site, whose resolver ends with the builder.
func (b *builder) dnsSite(ctx context.Context, g dnsGuard) (s *dnsSite, err error) {
	b.sites++
	s = &dnsSite{}
	if s.site, err = connectSite(b.lab, b.sites, otherEnd, resolverEnd); err != nil {
		return nil, err
	}
	if err := s.connectClients(ctx, b.sites); err != nil {
		return nil, err
	}
	for _, half := range []string{"0.0.0.0/1", "128.0.0.0/1"} {
		if err := s.server.Route(netip.MustParsePrefix(half), s.out.Addrs[0].Addr(), s.in); err != nil {
			return nil, err
		}
	}
	if err := b.watchVictim(s); err != nil {
		return nil, err
	}
	r, err := startResolver(ctx, s.server, g.conf)
	if err != nil {
		return nil, err
	}
	b.owned = append(b.owned, r.close)
	if g.policy == "" {
		return s, nil
	}
	_, err = b.hold(ctx, s.site, g.policy, "xdp")
	return s, err
}

// connectClients gives the n-th site the clients' host and wire.
func (s *dnsSite) connectClients(ctx context.Context, n int) error {
	host, err := s.lab.Host(fmt.Sprintf("clients%d", n))
	if err != nil {
		return err
	}
	out, in := otherEnd, resolverEnd
	out.First, in.First = true, true
	out.Addrs, in.Addrs = []netip.Prefix{netip.PrefixFrom(clientsAddr, 24)}, []netip.Prefix{netip.PrefixFrom(forClientsAddr, 24)}
	end, wire, err := s.lab.Connect(host, s.server, lab.LinkOptions{A: out, B: in})
	if err != nil {
		return err
	}
	s.clients, s.more = end, []*lab.Device{wire}
	if err := s.believe(wire.Name); err != nil {
		return err
	}
	if err := host.Route(netip.PrefixFrom(server4, 32), forClientsAddr, end); err != nil {
		return err
	}
	if err := s.server.Route(clientNetwork, clientsAddr, wire); err != nil {
		return err
	}
	_, _, err = runTool(ctx, host, strings.NewReader(clientRules()), "nft", "-f", "-")
	return err
}

// watchVictim counts what arrives at the other ends of the resolver's wires.
func (b *builder) watchVictim(s *dnsSite) (err error) {
	if s.victim, err = loadVictim(); err != nil {
		return err
	}
	b.owned = append(b.owned, s.victim.counts.Close)
	b.own(s.victim.program)
	for _, d := range []*lab.Device{s.out, s.clients} {
		if _, err := b.lab.Attach(d, s.victim.program); err != nil {
			return err
		}
	}
	return nil
}
