package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// floodedSite is a host with two wires in front of it, as of two uplinks: one with the clients, the other with the attacker. The site of dns
// says why.
type floodedSite struct {
	*rig.Site
	clients *lab.Device // of their host
}

// newFloodedSite builds another site, whose clients have a way to these servers.
func newFloodedSite(b *rig.Builder, servers ...netip.Addr) (s *floodedSite, err error) {
	b.Sites++
	s = &floodedSite{}
	if s.Site, err = rig.ConnectSite(b.Lab, b.Sites, rig.OtherEnd, rig.ServerEnd); err != nil {
		return nil, err
	}
	if err := s.connectClients(b.Sites, servers); err != nil {
		return nil, err
	}
	for _, half := range []string{"0.0.0.0/1", "128.0.0.0/1"} {
		if err := s.Server.Route(netip.MustParsePrefix(half), s.Out.Addrs[0].Addr(), s.In); err != nil {
			return nil, err
		}
	}
	return s, nil
}

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

// connectClients gives the n-th site the clients' host and wire, with ways to the servers.
func (s *floodedSite) connectClients(n int, servers []netip.Addr) error {
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
	for _, server := range servers {
		if err := host.Route(netip.PrefixFrom(server, 32), rig.ForClientsAddr, end); err != nil {
			return err
		}
	}
	return host.Own(rig.ClientNetwork)
}

// How the attacker sends beside clients, who share its CPU and go before it. They wait for a batch to end, which makes it
// short. Packets come in bursts, as a card's interrupts bring them: each on its own would wake the receive thread, which costs
// both CPUs more than the packet. What the clients keep from being sent in time is sent with the next bursts.
const (
	besideBatch   = 8
	besideBurst   = 64
	besideCatchUp = 3
)

// answersWait is how long answers to the flood wait to be looked at together, which takes less of the CPU that the clients are
// on. At barFlood, a sixth of a veth's places fill meanwhile.
const answersWait = 40 * time.Microsecond

// floodLead is how long before the clients the attacker begins.
const floodLead = 50 * time.Millisecond

// begin starts a flood, none without flows, which goes on until stop ends it. stop returns how many packets per second of it the host took from
// begin to stop, and in the weakest part of that time.
func (s *floodedSite) begin(ctx context.Context, flows []lab.Flow, pps float64, seed uint64) (stop func() (mean, least float64, err error), err error) {
	if flows == nil {
		return func() (float64, float64, error) { return 0, 0, nil }, nil
	}
	source, err := s.Lab.NewSource(s.Out, lab.SourceOptions{
		Flows: flows, CPU: rig.SourceCPU, Batch: besideBatch, Burst: besideBurst, Rate: pps, CatchUp: besideCatchUp, Seed: seed, Apart: true,
	})
	if err != nil {
		return nil, err
	}
	if err := s.Out.Coalesce(answersWait); err != nil {
		return nil, errors.Join(err, source.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx) }()
	for wait := true; wait; wait = source.Sent() == 0 {
		select {
		case err := <-done:
			cancel()
			return nil, errors.Join(err, errors.New("the flood ended before it began"), source.Close(), s.Out.Coalesce(0))
		case <-time.After(floodLead):
		}
	}
	w := watchRate(s.In.Received)
	return func() (float64, float64, error) {
		mean, least, err := w.stop()
		cancel()
		return mean, least, errors.Join(err, <-done, source.Close(), s.Out.Coalesce(0))
	}, nil
}
