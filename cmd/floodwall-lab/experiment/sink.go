package experiment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

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
