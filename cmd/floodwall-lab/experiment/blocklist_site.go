package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// The article's request, and the number of requests in the article.
const (
	pageFile        = "page"
	pageSize        = 10 << 10
	articleRequests = 1000
	warmup          = 50 // requests before the measured ones, which bring data back into the caches
)

// newSite builds another site. Its server ends with the builder. The server's routes to all other addresses lead to the clients' link.
func newSite(ctx context.Context, b *rig.Builder) (*rig.Site, error) {
	b.Sites++
	at, err := rig.ConnectSite(b.Lab, b.Sites, rig.OtherEnd, rig.ServerEnd)
	if err != nil {
		return nil, err
	}
	for _, part := range []string{"0.0.0.0/1", "128.0.0.0/1", "2000::/3"} {
		to := netip.MustParsePrefix(part)
		via := at.Out.Addrs[report.Choice(to.Addr().Is6(), 1, 0)].Addr()
		if err := at.Server.Route(to, via, at.In); err != nil {
			return nil, err
		}
	}
	where := rig.Place{CPU: rig.ReceiverCPU, Priority: lab.Urgent}
	n, err := rig.StartStaticNginx(ctx, at.Server, where, serverAt(false), serverAt(true), pageFile, make([]byte, pageSize))
	if err != nil {
		return nil, err
	}
	b.Owned = append(b.Owned, n.Close)
	return at, nil
}

// serverAt returns the server's address and port.
func serverAt(v6 bool) netip.AddrPort {
	return netip.AddrPortFrom(report.Choice(v6, rig.Server6, rig.Server4), 80)
}

// probeTime is the time for which a client waits for an answer that must not arrive.
const probeTime = 50 * time.Millisecond

// probe sends a request from a listed address. Without a firewall the request must be answered. With a firewall it must not.
func (c *blocker) probe(ctx context.Context, l *rig.List) error {
	listed, ok := l.Visitor()
	if !ok {
		return nil
	}
	o := c.serial(l, 1)
	o.From, o.Warmup = listed, 0
	if c.load != nil {
		o.Timeout = probeTime
	}
	if err := o.Host.Own(netip.PrefixFrom(listed, listed.BitLen())); err != nil {
		return err
	}
	switch _, err := lab.Serial(ctx, o); {
	case c.load == nil:
		return err
	case err == nil:
		return fmt.Errorf("%s is listed and gets an answer", listed)
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%s is listed: %w", listed, err)
	}
	return nil
}

// serial returns the options for the clients' requests.
func (c *blocker) serial(l *rig.List, requests int) lab.SerialOptions {
	return lab.SerialOptions{
		Host: c.site.Out.Host, Server: serverAt(l.V6), Request: lab.Request{Target: "/" + pageFile}, Body: pageSize,
		Requests: requests, Warmup: warmup, CPU: rig.SourceCPU, Urgent: true,
	}
}
