package experiment

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// synproxySite is a web server with two wires in front of it, as of two uplinks: one with the clients, the other with the
// attacker. The site of dns says why. The server is on the host that is flooded, or behind it.
type synproxySite struct {
	*rig.Site
	clients *lab.Device    // of their host
	web     netip.AddrPort // the server
	counts  rig.LoadedPeer // of what arrives at the attacker
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

// clientAddrs is the clients' addresses, each in a /24 of its own, since that is how the world's clients come. The flood
// has none of them.
func clientAddrs() (from []netip.Addr) {
	first := rig.ClientNetwork.Addr().As4()
	for i := range 250 {
		from = append(from, netip.AddrFrom4([4]byte{first[0], first[1], byte(i), 1}))
	}
	return from
}

// synproxyNewSite builds another site. Its server ends with the builder.
func synproxyNewSite(ctx context.Context, b *rig.Builder, behind bool) (s *synproxySite, err error) {
	b.Sites++
	s = &synproxySite{web: netip.AddrPortFrom(rig.Server4, 80)}
	if s.Site, err = rig.ConnectSite(b.Lab, b.Sites, rig.OtherEnd, rig.ServerEnd); err != nil {
		return nil, err
	}
	if err := s.connectClients(b.Sites); err != nil {
		return nil, err
	}
	for _, half := range []string{"0.0.0.0/1", "128.0.0.0/1"} {
		if err := s.Server.Route(netip.MustParsePrefix(half), s.Out.Addrs[0].Addr(), s.In); err != nil {
			return nil, err
		}
	}
	if err := watchSpoofed(b, s); err != nil {
		return nil, err
	}
	host := s.Server
	if behind {
		if host, err = s.connectBackend(b.Sites); err != nil {
			return nil, err
		}
	}
	n, err := rig.StartPlainNginx(ctx, host, rig.ReceiverCPU, s.web)
	if err != nil {
		return nil, err
	}
	b.Owned = append(b.Owned, n.Close)
	return s, nil
}

// connectClients gives the n-th site the clients' host and wire.
func (s *synproxySite) connectClients(n int) error {
	host, err := s.Lab.Host(fmt.Sprintf("clients%d", n))
	if err != nil {
		return err
	}
	end, wire, err := s.Lab.Connect(host, s.Server, lab.LinkOptions{A: firstEnd(rig.OtherEnd, rig.ClientsAddr), B: firstEnd(rig.ServerEnd, rig.ForClientsAddr)})
	if err != nil {
		return err
	}
	// What a program sends back by XDP_TX arrives only where one is attached too.
	if _, err := s.Lab.NewSink(end, lab.PassAll); err != nil {
		return err
	}
	s.clients, s.More = end, []*lab.Device{wire}
	if err := s.Believe(wire.Name); err != nil {
		return err
	}
	if err := s.Server.Route(rig.ClientNetwork, rig.ClientsAddr, wire); err != nil {
		return err
	}
	for _, web := range []netip.Addr{rig.Server4, backendAt.Addr()} {
		if err := host.Route(netip.PrefixFrom(web, 32), rig.ForClientsAddr, end); err != nil {
			return err
		}
	}
	return host.Own(rig.ClientNetwork)
}

// connectBackend puts the server behind the host that is flooded.
func (s *synproxySite) connectBackend(n int) (*lab.Host, error) {
	s.web = backendAt
	host, err := s.Lab.Host(fmt.Sprintf("backend%d", n))
	if err != nil {
		return nil, err
	}
	if err := s.Server.Router(); err != nil {
		return nil, err
	}
	inner, end, err := s.Lab.Connect(s.Server, host, lab.LinkOptions{A: firstEnd(rig.ServerEnd, forBackendAddr), B: firstEnd(rig.ServerEnd, backendAt.Addr())})
	if err != nil {
		return nil, err
	}
	s.inner = []*lab.Device{inner, end}
	return host, host.Route(netip.MustParsePrefix("0.0.0.0/0"), forBackendAddr, end)
}

// watchSpoofed counts what arrives at the attacker.
func watchSpoofed(b *rig.Builder, s *synproxySite) (err error) {
	if s.counts, err = rig.LoadPeer(rig.Spoofed, nil, nil); err != nil {
		return err
	}
	b.Owned = append(b.Owned, s.counts.Counts.Close)
	_, err = b.Lab.Attach(s.Out, b.Own(s.counts.Program))
	return err
}

// returned is what came back to the attacker: frames.
type returned struct{ synAcks, resets, others uint64 }

func (r returned) all() uint64 { return r.synAcks + r.resets + r.others }

// returned reads the counters.
func (s *synproxySite) returned() (r returned, err error) {
	for i, to := range []*uint64{&r.synAcks, &r.resets, &r.others} {
		var perCPU [][2]uint64
		if err := s.counts.Counts.Lookup(uint32(i), &perCPU); err != nil {
			return r, fmt.Errorf("counters: %w", err)
		}
		for _, c := range perCPU {
			*to += c[0]
		}
	}
	return r, nil
}
