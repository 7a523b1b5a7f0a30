// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
)

// floodedSite is a host with two links, like a host with two uplinks: one to the clients, and one to the attacker. Both links end at the firewall. On
// a common link, the flood would fill the queue of 256 places (kernel drivers/net/veth.c, VETH_RING_SIZE), and clients' packets would be lost. At 2
// Mpps that would happen whenever the CPU does other work for an eighth of a millisecond. No firewall can prevent this loss, and network cards have
// up to some thousand places. One CPU receives from both links, and serves the clients' link first whenever it has packets. If interrupts served both
// links in turn, the clients' link would wait for at most 64 packets of the flood.
type floodedSite struct {
	*rig.Site
	clients *lab.Device // the device of the clients' host
	sink    *lab.Sink   // passes all packets at that device
}

// newFloodedSite builds another site. Its clients have routes to the given servers.
func newFloodedSite(b *rig.Builder, servers ...netip.Addr) (s *floodedSite, err error) {
	s = &floodedSite{}
	if s.Site, err = b.Connect(rig.OtherEnd, rig.ServerEnd); err != nil {
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

// firstEnd returns the options of a link's end with one address. This end is served before the flood's end.
func firstEnd(o lab.EndOptions, addr netip.Addr) lab.EndOptions {
	o.First, o.Addrs = true, []netip.Prefix{netip.PrefixFrom(addr, 24)}
	return o
}

// The link to a host behind the site's host. innerDevice is the name of the device towards it.
var behindAddr, forBehindAddr = netip.MustParseAddr("10.2.0.2"), netip.MustParseAddr("10.2.0.1")

const innerDevice = "inner"

// connectBehind adds a host behind the host of site number n, which becomes a router. Packets of the attacker's host to behindAddr pass the router.
func connectBehind(at *rig.Site, n int, o lab.EndOptions) (inner, end *lab.Device, err error) {
	host, err := at.Lab.Host(fmt.Sprintf("behind%d", n))
	if err == nil {
		err = at.Server.Router()
	}
	if err != nil {
		return nil, nil, err
	}
	near := firstEnd(o, forBehindAddr)
	near.Name = innerDevice
	if inner, end, err = at.Lab.Connect(at.Server, host, lab.LinkOptions{A: near, B: firstEnd(o, behindAddr)}); err != nil {
		return nil, nil, err
	}
	if err := at.Out.Host.Route(netip.PrefixFrom(behindAddr, 32), rig.Server4, at.Out); err != nil {
		return nil, nil, err
	}
	return inner, end, host.Route(netip.MustParsePrefix("0.0.0.0/0"), forBehindAddr, end)
}

// clientAddrs returns the clients' addresses. Each is in a /24 of its own, as with clients on the Internet. The flood uses none of these addresses.
func clientAddrs() (from []netip.Addr) {
	first := rig.ClientNetwork.Addr().As4()
	for i := range 250 {
		from = append(from, netip.AddrFrom4([4]byte{first[0], first[1], byte(i), 1}))
	}
	return from
}

// connectClients adds the clients' host and link to site number n, with routes to the servers.
func (s *floodedSite) connectClients(n int, servers []netip.Addr) error {
	host, err := s.Lab.Host(fmt.Sprintf("clients%d", n))
	if err != nil {
		return err
	}
	end, wire, err := s.Lab.Connect(host, s.Server, lab.LinkOptions{A: firstEnd(rig.OtherEnd, rig.ClientsAddr), B: firstEnd(rig.ServerEnd, rig.ForClientsAddr)})
	if err != nil {
		return err
	}
	// If a program sends a packet back by XDP_TX, the packet arrives only if the other end also has a program.
	if s.sink, err = s.Lab.NewSink(end, lab.PassAll); err != nil {
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

// How an attacker sends if it shares its CPU with clients of a higher priority. The clients wait until a batch ends, so batches are short. Packets
// are sent in bursts, because a single packet would wake the receive thread, which costs both CPUs more than the packet itself. Network cards with
// interrupts also deliver bursts. Packets that the clients delay are sent with the next bursts.
const (
	besideBatch   = 8
	besideBurst   = 64
	besideCatchUp = 3
)

// answersWait is the time for which answers to the flood are collected before they are read. This takes less CPU time from the clients. At barFlood,
// a sixth of the places of a veth's queue are filled in this time.
const answersWait = 40 * time.Microsecond

// floodLead is the time by which the attacker starts before the clients.
const floodLead = 50 * time.Millisecond

// begin starts a flood, which continues until stop is called. Without flows there is no flood. The function stop returns two rates, in packets per
// second that the host handled: the mean from begin to stop, and the rate in the weakest part of this time.
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
	watched := watchRate(s.In.Received)
	return func() (float64, float64, error) {
		mean, least, err := watched()
		cancel()
		return mean, least, errors.Join(err, <-done, source.Close(), s.Out.Coalesce(0))
	}, nil
}

// sinkSite is a site with a socket that nobody reads.
type sinkSite struct {
	*rig.Site
	sink net.PacketConn
}

func newSinkSite(b *rig.Builder) (*sinkSite, error) {
	at, err := b.NewSite()
	if err != nil {
		return nil, err
	}
	sink, err := openSink(b, at.Server, netip.AddrPortFrom(rig.Server4, rig.SinkPort))
	return &sinkSite{at, sink}, err
}

// openSink opens a socket of UDP in a host, until the builder is closed.
func openSink(b *rig.Builder, h *lab.Host, at netip.AddrPort) (sink net.PacketConn, err error) {
	err = h.Do(func() (err error) {
		sink, err = net.ListenPacket("udp4", at.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sink: %w", err)
	}
	b.Owned = append(b.Owned, sink.Close)
	return sink, nil
}

// expect sends some packets, and checks that all of them arrive at the socket, or none if accept is false. Measuring a guard with other decisions
// would be useless.
func (s *sinkSite) expect(ctx context.Context, flow lab.Flow, accept bool) error {
	source, err := s.Lab.NewSource(s.Out, lab.SourceOptions{
		Flows: []lab.Flow{flow}, CPU: rig.SourceCPU, Seed: 1, Count: rig.TestPackets, Rate: 1000,
	})
	if err != nil {
		return err
	}
	if err := errors.Join(source.Run(ctx), source.Close()); err != nil {
		return err
	}
	want, wait := 0, 50*time.Millisecond
	if accept {
		want, wait = rig.TestPackets, 2*time.Second
	}
	if err := s.sink.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	got, bytes := 0, make([]byte, 2048)
	for got < rig.TestPackets {
		if _, _, err := s.sink.ReadFrom(bytes); err != nil {
			break // the deadline has passed
		}
		got++
	}
	if got != want && ctx.Err() == nil {
		return fmt.Errorf("%d of %d packets are accepted, want %d", got, rig.TestPackets, want)
	}
	return ctx.Err()
}
