package experiment

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// prepare builds the site of a case.
func (b *bulkBuilder) prepare(ctx context.Context, c *bulkCase) (err error) {
	if err := b.connect(c); err != nil {
		return err
	}
	return c.install(ctx, &b.synproxyBuilder, c.site)
}

// connect builds a site where the attacker's place is the client's.
func (b *bulkBuilder) connect(c *bulkCase) (err error) {
	b.Sites++
	out := rig.OtherEnd
	out.Queue = true // or segments are lost where a burst finds no place
	s := &synproxySite{web: netip.AddrPortFrom(rig.Server4, 80)}
	if s.Site, err = rig.ConnectSite(b.Lab, b.Sites, out, rig.ServerEnd); err != nil {
		return err
	}
	// What a program sends back by XDP_TX arrives only where one is attached too.
	if _, err := b.Lab.NewSink(s.Out, lab.PassAll); err != nil {
		return err
	}
	c.site, c.server = s, s.Server
	if !c.behind {
		return nil
	}
	if c.server, err = s.connectBackend(b.Sites); err != nil {
		return err
	}
	return s.Out.Host.Route(netip.PrefixFrom(backendAt.Addr(), 32), rig.Server4, s.Out)
}

// open connects the client to the server. Both ends stand when it returns, also where a proxy is between them.
func (c *bulkCase) open(ctx context.Context) (client, server *streamEnd, err error) {
	ctx, cancel := context.WithTimeout(ctx, streamPatience)
	defer cancel()
	l, err := c.listen(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	near, err := c.site.Out.Host.Dial(ctx, "tcp", c.site.web)
	if err != nil {
		return nil, nil, err
	}
	defer near.Close()
	if err := l.SetDeadline(time.Now().Add(streamPatience)); err != nil {
		return nil, nil, err
	}
	far, err := l.Accept()
	if err != nil {
		return nil, nil, err
	}
	defer far.Close()
	if client, err = newStreamEnd(near, rig.SourceCPU); err != nil {
		return nil, nil, err
	}
	if server, err = newStreamEnd(far, rig.ReceiverCPU); err != nil {
		return nil, nil, errors.Join(err, client.close())
	}
	return client, server, nil
}

// listen opens a socket of the server's as most servers do: without MPTCP, which Go takes by default.
func (c *bulkCase) listen(ctx context.Context) (l *net.TCPListener, err error) {
	err = c.server.Do(func() error {
		var config net.ListenConfig
		config.SetMultipathTCP(false)
		opened, err := config.Listen(ctx, "tcp", c.site.web.String())
		if err == nil {
			l = opened.(*net.TCPListener)
		}
		return err
	})
	return l, err
}

// transfer opens a connection and moves bytes over it. It returns one figure of each kind.
func (c *bulkCase) transfer(ctx context.Context, way bulkWay, bytes int64) (rate, able float64, err error) {
	client, server, err := c.open(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, client.close(), server.close()) }()
	before, err := c.received()
	if err != nil {
		return 0, 0, err
	}
	clients, servers := streamCall(unix.Write), streamCall(unix.Read)
	if way == toClient {
		clients, servers = servers, clients
	}
	began := time.Now()
	started, other := client.start(clients, bytes), server.start(servers, bytes)
	near, far := <-started, <-other
	took := time.Since(began)
	after, looked := c.received()
	busiest := max(near.ran+after[0]-before[0], far.ran+after[1]-before[1])
	perSecond := func(d time.Duration) float64 { return float64(bytes) / d.Seconds() }
	return perSecond(took), perSecond(busiest), errors.Join(near.err, far.err, looked)
}

// received is how long the receive threads of the site have run: the client's, and the others, on another CPU.
func (c *bulkCase) received() (ran [2]time.Duration, err error) {
	for i, devices := range [][]*lab.Device{{c.site.Out}, append([]*lab.Device{c.site.In}, c.site.inner...)} {
		for _, d := range devices {
			more, err := d.Ran()
			if err != nil {
				return ran, err
			}
			ran[i] += more
		}
	}
	return ran, nil
}
