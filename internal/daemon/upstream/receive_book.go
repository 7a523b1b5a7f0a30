// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/policy"
)

// mostRoutes is the largest number of routes that are checked, and of routes that are remembered. `floodwall-bgp` ends sessions with more routes.
const mostRoutes = 20_000

// book remembers the routes of routers while their session is lost, for the time in the policy's graceful_restart (RFC 4724).
type book struct {
	routes map[routeKey]entry
}

// routeKey identifies a route.
type routeKey struct {
	peer   netip.Addr
	family policy.Family
	nlri   string
}

type entry struct {
	route wire.Route
	seen  time.Time // when the router last had the route, not as a stale route
	there bool      // the router has the route, or had it before the router's restart
	had   bool      // the value of `there` at the previous look
}

// until returns when the router last had a route. lost is the end of the router's session. If the router had the route at the last look before that
// end, the result is lost.
func (e entry) until(lost, now time.Time) time.Time {
	if !e.route.Stale && lost.After(e.seen) && lost.Before(now) {
		return lost
	}
	return e.seen
}

// session is the state of the session with a router.
type session struct {
	established bool
	restarting  bool      // the router has reconnected, but has not sent End-of-RIB
	lost        time.Time // when the session last ended; zero: unknown
}

// up reports whether the router has sent all of its routes.
func (s session) up() bool { return s.established && !s.restarting }

// take records the routes that routers have now. If a route is missing, and the session with its router is established, the route was withdrawn. If
// the session is lost, the route stays for the router's restart time. A stale route, from before a restart of the router, stays for the same time. So
// two kinds of routers cannot keep a route in force too long: a router that never sends End-of-RIB (RFC 4724, 2), and a router that requests a longer
// time than the policy's. The time starts when the session was lost, even if this daemon started later.
func (b *book) take(routes []wire.Route, sessions map[netip.Addr]session, now time.Time) {
	if b.routes == nil {
		b.routes = map[routeKey]entry{}
	}
	for k, e := range b.routes {
		e.there, e.had = false, e.there
		b.routes[k] = e
	}
	for _, r := range routes[:min(len(routes), mostRoutes)] {
		k := routeKey{r.Peer, r.Family, string(r.NLRI)}
		seen := now
		if was, ok := b.routes[k]; ok && r.Stale {
			seen = was.until(sessions[r.Peer].lost, now)
		} else if lost := sessions[r.Peer].lost; r.Stale && !lost.IsZero() && lost.Before(now) {
			seen = lost
		}
		b.routes[k] = entry{route: r, seen: seen, there: true}
	}
	for k, e := range b.routes {
		switch s := sessions[k.peer]; {
		case e.there:
		case s.up() || s.established && e.had && !e.route.Stale:
			delete(b.routes, k)
		case e.had:
			e.seen = e.until(s.lost, now)
			b.routes[k] = e
		}
	}
	b.bound()
}

// bound removes withdrawn routes when there are more than mostRoutes. It first removes the routes that routers had longest ago.
func (b *book) bound() {
	if len(b.routes) <= mostRoutes {
		return
	}
	var gone []routeKey
	for k, e := range b.routes {
		if !e.there {
			gone = append(gone, k)
		}
	}
	slices.SortFunc(gone, func(x, y routeKey) int {
		return cmp.Or(b.routes[x].seen.Compare(b.routes[y].seen), x.peer.Compare(y.peer), cmp.Compare(x.nlri, y.nlri))
	})
	for _, k := range gone[:len(b.routes)-mostRoutes] {
		delete(b.routes, k)
	}
}

// held returns the routes that are in force at a time. It removes all others, except stale routes that routers still have.
func (b *book) held(u *policy.Upstream, now time.Time) (list []wire.Route) {
	for k, e := range b.routes {
		switch {
		case now.Sub(e.seen) <= restartTime(u, k.peer):
			list = append(list, e.route)
		case !e.there:
			delete(b.routes, k)
		}
	}
	return list
}

// restartTime returns how long a router's routes stay while its session is lost. It is 0 when the policy does not name the router.
func restartTime(u *policy.Upstream, peer netip.Addr) time.Duration {
	for _, p := range u.Peers {
		if p.Address == peer {
			return p.Restart
		}
	}
	return -1
}
