package experiment

import (
	"context"
	"net/netip"

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
	s := &synproxySite{floodedSite: &floodedSite{}, web: netip.AddrPortFrom(rig.Server4, 80)}
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

// path is the client's to the server.
func (c *bulkCase) path() *streamPath {
	return &streamPath{
		from: c.site.Out.Host, to: c.server, at: c.site.web, cpus: [2]int{rig.SourceCPU, rig.ReceiverCPU},
		devices: [2][]*lab.Device{{c.site.Out}, append([]*lab.Device{c.site.In}, c.site.inner...)},
	}
}
