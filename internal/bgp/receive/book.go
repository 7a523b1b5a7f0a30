package receive

import (
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/policy"
)

// mostRoutes is how many routes are looked at. `floodwall bgp` ends sessions in which more come.
const mostRoutes = 20_000

// book remembers the routes of routers while their session is lost: for as long as the policy says under graceful_restart (RFC 4724).
type book struct {
	routes map[routeKey]entry
}

// routeKey tells a route from others.
type routeKey struct {
	peer   netip.Addr
	family policy.Family
	nlri   string
}

type entry struct {
	route wire.Route
	seen  time.Time // when the router had it last
}

// take notes what routers have now. A route that is not there any more has been withdrawn if the session with its router is established,
// else it stays for the time of its router.
func (b *book) take(routes []wire.Route, up map[netip.Addr]bool, u *policy.Upstream, now time.Time) {
	if b.routes == nil {
		b.routes = map[routeKey]entry{}
	}
	there := map[routeKey]bool{}
	for _, r := range routes[:min(len(routes), mostRoutes)] {
		k := routeKey{r.Peer, r.Family, string(r.NLRI)}
		there[k] = true
		b.routes[k] = entry{r, now}
	}
	for k, e := range b.routes {
		if !there[k] && (up[k.peer] || now.Sub(e.seen) > restartTime(u, k.peer)) {
			delete(b.routes, k)
		}
	}
}

// restartTime is how long routes of a router stay while its session is lost: not at all when the policy does not name it.
func restartTime(u *policy.Upstream, peer netip.Addr) time.Duration {
	for _, p := range u.Peers {
		if p.Address == peer {
			return p.Restart
		}
	}
	return -1
}
