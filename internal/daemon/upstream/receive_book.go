package upstream

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/policy"
)

// mostRoutes is how many routes are looked at, and how many are remembered. `floodwall-bgp` ends sessions in which more come.
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
	seen  time.Time // when the router had it last, and not as a stale one
	there bool      // the router has it, or had it and restarts
	had   bool      // at the look before
}

// until is when the router had a route last whose session ended at lost: at that time if it had the route at the last look, which was before.
func (e entry) until(lost, now time.Time) time.Time {
	if !e.route.Stale && lost.After(e.seen) && lost.Before(now) {
		return lost
	}
	return e.seen
}

// session is that with a router.
type session struct {
	established bool
	restarting  bool      // the router is back, and has not said End-of-RIB
	lost        time.Time // when a session with it ended last; zero: that is not known
}

// up reports whether the router has told all routes that it has.
func (s session) up() bool { return s.established && !s.restarting }

// take notes what routers have now. A route that is not there any more has been withdrawn if the session with its router is established,
// else it stays for the time of its router. So does a stale one, of before the router's restart: a router that is back and never says
// End-of-RIB (RFC 4724, 2) does not keep it in force, nor does one that asks for a longer time than the policy has. The time begins when
// the session was lost, also for a daemon that started since.
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

// bound forgets the routes that routers had longest ago, of those that they have no more, when there are more than mostRoutes.
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

// held are the routes that are in force at a time. It forgets the others, but for stale ones that are still there.
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

// restartTime is how long routes of a router stay while its session is lost: not at all when the policy does not name it.
func restartTime(u *policy.Upstream, peer netip.Addr) time.Duration {
	for _, p := range u.Peers {
		if p.Address == peer {
			return p.Restart
		}
	}
	return -1
}
