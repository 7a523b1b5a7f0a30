package bench

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/floodwall/floodwall/internal/lab"
)

// dnsSite is a resolver with two wires, as of two uplinks: on one come the clients' queries, on the other the flood, and
// what it makes the resolver send to others leaves there. On one wire, a client's query is lost whenever the flood fills
// the 256 places of its queue (kernel drivers/net/veth.c, VETH_RING_SIZE), which at 2 Mpps is after an eighth of a
// millisecond in which the CPU did something else. No firewall can help there, and a network card's queue, of some
// thousand places, seldom overflows. The two meet where the firewall is: one CPU receives both.
type dnsSite struct {
	*site
	clients *lab.Device // of their host
	victim  peer
}

// The ends of the clients' wire.
var (
	clientsEnd  = lab.ParseAddrs("10.1.0.1/24")
	resolverEnd = lab.ParseAddrs("10.1.0.2/24")
)

// dnsSite builds another site, whose resolver ends with the builder.
func (b *builder) dnsSite(ctx context.Context, g dnsGuard) (s *dnsSite, err error) {
	b.sites++
	s = &dnsSite{}
	s.site, err = connectSite(b.lab, b.sites,
		lab.EndOptions{CPU: lab.OnCPU(sourceCPU), Urgent: true}, lab.EndOptions{CPU: lab.OnCPU(receiverCPU), Urgent: true})
	if err != nil {
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
	end, wire, err := s.lab.Connect(host, s.server, lab.LinkOptions{
		A: lab.EndOptions{CPU: lab.OnCPU(sourceCPU), Urgent: true, First: true, Addrs: clientsEnd},
		B: lab.EndOptions{CPU: lab.OnCPU(receiverCPU), Urgent: true, First: true, Addrs: resolverEnd},
	})
	if err != nil {
		return err
	}
	s.clients, s.more = end, []*lab.Device{wire}
	if err := s.believe(wire.Name); err != nil {
		return err
	}
	if err := host.Route(netip.PrefixFrom(server4, 32), resolverEnd[0].Addr(), end); err != nil {
		return err
	}
	if err := s.server.Route(clientNetwork, clientsEnd[0].Addr(), wire); err != nil {
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
