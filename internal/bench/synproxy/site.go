package bench

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/floodwall/floodwall/internal/lab"
)

// synSite is a web server with two wires in front of it, as of two uplinks: one with the clients, the other with the
// attacker. dnsSite says why. The server is on the host that is flooded, or behind it.
type synSite struct {
	*site
	clients *lab.Device    // of their host
	web     netip.AddrPort // the server
	counts  peer           // of what arrives at the attacker
	inner   []*lab.Device  // the link to the server, when it is behind
}

// backendAt is the server's address when it is behind the flooded host, and forBackendAddr that host's end of their link.
var (
	backendAt      = netip.MustParseAddrPort("10.2.0.2:80")
	forBackendAddr = netip.MustParseAddr("10.2.0.1")
)

// firstEnd is an end with one address that goes before the flood's.
func firstEnd(o lab.EndOptions, addr netip.Addr) lab.EndOptions {
	o.First, o.Addrs = true, []netip.Prefix{netip.PrefixFrom(addr, 24)}
	return o
}

// synClients is the clients' addresses, each in a /24 of its own, since that is how the world's clients come. The flood
// has none of them.
func synClients() (from []netip.Addr) {
	first := clientNetwork.Addr().As4()
	for i := range 250 {
		from = append(from, netip.AddrFrom4([4]byte{first[0], first[1], byte(i), 1}))
	}
	return from
}

// synSite builds another site. Its server ends with the builder.
func (b *builder) synSite(ctx context.Context, behind bool) (s *synSite, err error) {
	b.sites++
	s = &synSite{web: netip.AddrPortFrom(server4, 80)}
	if s.site, err = connectSite(b.lab, b.sites, otherEnd, resolverEnd); err != nil {
		return nil, err
	}
	if err := s.connectClients(b.sites); err != nil {
		return nil, err
	}
	for _, half := range []string{"0.0.0.0/1", "128.0.0.0/1"} {
		if err := s.server.Route(netip.MustParsePrefix(half), s.out.Addrs[0].Addr(), s.in); err != nil {
			return nil, err
		}
	}
	if err := b.watchSpoofed(s); err != nil {
		return nil, err
	}
	host := s.server
	if behind {
		if host, err = s.connectBackend(b.sites); err != nil {
			return nil, err
		}
	}
	n, err := startPlainNginx(ctx, host, receiverCPU, s.web)
	if err != nil {
		return nil, err
	}
	b.owned = append(b.owned, n.close)
	return s, nil
}

// connectClients gives the n-th site the clients' host and wire.
func (s *synSite) connectClients(n int) error {
	host, err := s.lab.Host(fmt.Sprintf("clients%d", n))
	if err != nil {
		return err
	}
	end, wire, err := s.lab.Connect(host, s.server, lab.LinkOptions{A: firstEnd(otherEnd, clientsAddr), B: firstEnd(resolverEnd, forClientsAddr)})
	if err != nil {
		return err
	}
	// What a program sends back by XDP_TX arrives only where one is attached too.
	if _, err := s.lab.NewSink(end, lab.PassAll); err != nil {
		return err
	}
	s.clients, s.more = end, []*lab.Device{wire}
	if err := s.believe(wire.Name); err != nil {
		return err
	}
	if err := s.server.Route(clientNetwork, clientsAddr, wire); err != nil {
		return err
	}
	for _, web := range []netip.Addr{server4, backendAt.Addr()} {
		if err := host.Route(netip.PrefixFrom(web, 32), forClientsAddr, end); err != nil {
			return err
		}
	}
	return host.Own(clientNetwork)
}

// connectBackend puts the server behind the host that is flooded.
func (s *synSite) connectBackend(n int) (*lab.Host, error) {
	s.web = backendAt
	host, err := s.lab.Host(fmt.Sprintf("backend%d", n))
	if err != nil {
		return nil, err
	}
	if err := s.server.Router(); err != nil {
		return nil, err
	}
	inner, end, err := s.lab.Connect(s.server, host, lab.LinkOptions{A: firstEnd(resolverEnd, forBackendAddr), B: firstEnd(resolverEnd, backendAt.Addr())})
	if err != nil {
		return nil, err
	}
	s.inner = []*lab.Device{inner, end}
	return host, host.Route(netip.MustParsePrefix("0.0.0.0/0"), forBackendAddr, end)
}

// watchSpoofed counts what arrives at the attacker.
func (b *builder) watchSpoofed(s *synSite) (err error) {
	if s.counts, err = loadPeer(spoofed, nil, nil); err != nil {
		return err
	}
	b.owned = append(b.owned, s.counts.counts.Close)
	_, err = b.lab.Attach(s.out, b.own(s.counts.program))
	return err
}

// returned is what came back to the attacker: frames.
type returned struct{ synAcks, resets, others uint64 }

func (r returned) all() uint64 { return r.synAcks + r.resets + r.others }

// returned reads the counters.
func (s *synSite) returned() (r returned, err error) {
	for i, to := range []*uint64{&r.synAcks, &r.resets, &r.others} {
		var perCPU [][2]uint64
		if err := s.counts.counts.Lookup(uint32(i), &perCPU); err != nil {
			return r, fmt.Errorf("counters: %w", err)
		}
		for _, c := range perCPU {
			*to += c[0]
		}
	}
	return r, nil
}
