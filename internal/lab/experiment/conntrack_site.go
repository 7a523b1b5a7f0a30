package experiment

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// site is a web server as in the article, with clients on a host of their own: nginx speaks TLS in front of a Go
// program over the loopback device.
type site struct {
	*rig.Site
	clients *lab.Host
}

// The servers.
var (
	webAt    = netip.AddrPortFrom(rig.Server4, 443)
	behindAt = netip.MustParseAddrPort("127.0.0.1:8080")
)

// The clients of the article: as many as its tool had. A request that takes as long as its tool waits has failed.
const (
	connections = 125
	timeout     = 2 * time.Second
)

// conntrackPageSize is the size of the page. The article does not tell its own.
const conntrackPageSize = 1024

// conntrackNewSite builds another site, whose servers end with the builder.
func conntrackNewSite(ctx context.Context, b *rig.Builder) (*site, error) {
	b.Sites++
	at, err := rig.ConnectSite(b.Lab, b.Sites, lab.EndOptions{}, lab.EndOptions{})
	if err != nil {
		return nil, err
	}
	if _, err := b.Lab.NewServer(at.Server, behindAt, make([]byte, conntrackPageSize)); err != nil {
		return nil, err
	}
	n, err := rig.StartNginx(ctx, at.Server, webAt, behindAt)
	if err != nil {
		return nil, err
	}
	b.Owned = append(b.Owned, n.Close)
	return &site{Site: at, clients: at.Out.Host}, nil
}

// moment is what clients and server saw in an interval.
type moment struct {
	lab.Sample
	entries int    // in the table at its end, without those that it was filled with
	drops   uint64 // in it, of packets that found the table full
}

// conntrackVisit is what came of some time of requests.
type conntrackVisit struct {
	lab.LoadSummary
	moments []moment
	entries int // the most at any time
	drops   uint64
	early   uint64 // entries thrown out early
}

// visit has clients ask for so long, and watches the table, of which so much is filled by others.
func (s *site) visit(ctx context.Context, duration time.Duration, filled int) (*conntrackVisit, error) {
	before, err := s.Server.Conntrack()
	if err != nil {
		return nil, err
	}
	v := &conntrackVisit{}
	last := before
	var watched error
	v.LoadSummary, err = lab.Load(ctx, lab.LoadOptions{
		Host: s.clients, Server: webAt, TLS: &tls.Config{InsecureSkipVerify: true}, Connections: connections,
		Timeout: timeout, Duration: duration, Interval: min(time.Second, duration/4),
		OnSample: func(sample lab.Sample) {
			now, err := s.Server.Conntrack()
			if err != nil {
				watched = err
				return
			}
			v.moments = append(v.moments, moment{sample, now.Entries - filled, now.Drops - last.Drops})
			v.entries, last = max(v.entries, now.Entries-filled), now
		},
	})
	if err := errors.Join(err, watched); err != nil {
		return nil, fmt.Errorf("requests: %w", err)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	v.drops, v.early = last.Drops-before.Drops, last.EarlyDrops-before.EarlyDrops
	return v, nil
}

// rates are the requests answered per second in each interval.
func (v *conntrackVisit) rates() (all []float64) {
	for _, m := range v.moments {
		if !m.Late {
			all = append(all, m.Rate)
		}
	}
	return all
}

// fullRate is the requests answered per second after the first packet was dropped; false when none was.
func (v *conntrackVisit) fullRate() (float64, bool) {
	full, ok := time.Duration(0), uint64(0)
	for _, m := range v.moments {
		if full > 0 && !m.Late {
			ok += m.OK
		}
		if full == 0 && m.drops > 0 {
			full = m.Time
		}
	}
	if left := v.Time - full; full > 0 && left > 0 {
		return float64(ok) / left.Seconds(), true
	}
	return 0, false
}
