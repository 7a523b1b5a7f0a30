package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// The article's request, and how often it was made.
const (
	blockFile     = "page"
	blockFileSize = 10 << 10
	blockRequests = 1000
	blockWarmup   = 50 // requests before those, by which what was swept from the caches comes back
)

// blockSite builds another site, whose server ends with the builder. The clients' wire leads to all the world.
func (b *builder) blockSite(ctx context.Context) (*site, error) {
	b.sites++
	at, err := connectSite(b.lab, b.sites, otherEnd, resolverEnd)
	if err != nil {
		return nil, err
	}
	for _, part := range []string{"0.0.0.0/1", "128.0.0.0/1", "2000::/3"} {
		to := netip.MustParsePrefix(part)
		via := at.out.Addrs[choice(to.Addr().Is6(), 1, 0)].Addr()
		if err := at.server.Route(to, via, at.in); err != nil {
			return nil, err
		}
	}
	n, err := startStaticNginx(ctx, at.server, place{receiverCPU, lab.Urgent}, blockServer(false), blockServer(true), blockFile, make([]byte, blockFileSize))
	if err != nil {
		return nil, err
	}
	b.owned = append(b.owned, n.close)
	return at, nil
}

// blockServer is the server's address.
func blockServer(v6 bool) netip.AddrPort { return netip.AddrPortFrom(choice(v6, server6, server4), 80) }

// probeTime is how long a client waits who must not get an answer.
const probeTime = 50 * time.Millisecond

// probe has a client ask whose address is listed. Without a firewall, there is an answer.
func (c *blockCase) probe(ctx context.Context, l *list) error {
	listed, ok := l.visitor()
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

// serial is what the clients ask.
func (c *blockCase) serial(l *list, requests int) lab.SerialOptions {
	return lab.SerialOptions{
		Host: c.site.out.Host, Server: blockServer(l.v6), Request: lab.Request{Target: "/" + blockFile}, Body: blockFileSize,
		Requests: requests, Warmup: blockWarmup, CPU: sourceCPU, Urgent: true,
	}
}
