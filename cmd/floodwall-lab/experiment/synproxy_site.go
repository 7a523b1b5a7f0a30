package experiment

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// synproxySite is a web server, on the flooded host or behind it.
type synproxySite struct {
	*floodedSite
	web    netip.AddrPort // the server
	counts rig.LoadedPeer // of the packets that arrive at the attacker
	inner  []*lab.Device  // the link to the server, if the server is behind
}

// backendAt is the server's address if it is behind the flooded host. forBackendAddr is that host's end of their link.
var (
	backendAt      = netip.MustParseAddrPort("10.2.0.2:80")
	forBackendAddr = netip.MustParseAddr("10.2.0.1")
)

// prepare builds the site with a guard. The server ends with the builder.
func (s *synproxySite) prepare(ctx context.Context, b *rig.Builder, g synproxyGuard) (err error) {
	s.web = netip.AddrPortFrom(rig.Server4, 80)
	if s.floodedSite, err = newFloodedSite(b, rig.Server4, backendAt.Addr()); err != nil {
		return err
	}
	if err := watchSpoofed(b, s); err != nil {
		return err
	}
	host := s.Server
	if g.behind {
		if host, err = s.connectBackend(b.Sites); err != nil {
			return err
		}
	}
	n, err := rig.StartPlainNginx(ctx, host, rig.ReceiverCPU, s.web)
	if err != nil {
		return err
	}
	b.Owned = append(b.Owned, n.Close)
	return b.Guard(ctx, s.Site, g.guard)
}

// connectBackend adds a host behind the flooded host, for the server.
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

// watchSpoofed counts the packets that arrive at the attacker.
func watchSpoofed(b *rig.Builder, s *synproxySite) (err error) {
	if s.counts, err = rig.LoadPeer(rig.Spoofed, nil, nil); err != nil {
		return err
	}
	b.Owned = append(b.Owned, s.counts.Counts.Close)
	_, err = b.Lab.Attach(s.Out, b.Own(s.counts.Program))
	return err
}

// returned is the numbers of frames that came back to the attacker.
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
