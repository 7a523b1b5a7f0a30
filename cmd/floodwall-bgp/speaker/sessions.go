// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/policy"
)

// The largest number of routes of a family that a router may send. More routes end the session, so that a router cannot fill the memory.
const (
	mostUnicast  = 1000
	mostFlowSpec = 4000
)

// The largest total size in bytes of the received routes that the daemon gets each second, and the size that each route has in addition to its own
// bytes.
const (
	mostReceived = 4 << 20
	routeSize    = 210 // so large that there are fewer routes than the 20,000 that the daemon accepts
)

// A session that ended because of too many routes starts again after againWait, because the router may have been fixed. Such sessions are checked
// every againLook.
const (
	againWait = 5 * time.Minute
	againLook = 10 * time.Second
)

// connectRetry is the time between attempts to connect, in seconds.
const connectRetry = 5

// sessions contains the sessions with the routers of a policy, in one instance of GoBGP.
type sessions struct {
	bgp       *server.BgpServer
	upstream  *policy.Upstream
	passwords map[string]string
	out       map[string]sent      // announced routes, by the key of the announcement
	many      map[string]time.Time // when a router's session was ended because of too many routes, by the router's address
	looked    time.Time            // when routers with ended sessions were last checked
}

// sent is an announced route.
type sent struct {
	path *apiutil.Path
	text string // text of the route, which depends on the policy's communities and next hops
}

// open starts GoBGP. GoBGP never listens, because this host opens all sessions.
func open(log *slog.Logger, u *policy.Upstream, passwords map[string]string) (*sessions, error) {
	s := &sessions{upstream: u, passwords: passwords, out: map[string]sent{}}
	s.bgp = server.NewBgpServer(server.LoggerOption(log, &slog.LevelVar{}))
	go s.bgp.Serve()
	ctx := context.Background()
	err := s.bgp.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{Asn: u.AS, RouterId: u.RouterID.String(), ListenPort: -1}})
	if err == nil {
		err = s.ownRoutesAlone(ctx)
	}
	for i := 0; err == nil && i < len(u.Peers); i++ {
		err = s.add(u.Peers[i])
	}
	if err != nil {
		s.close(false)
		return nil, err
	}
	return s, nil
}

// ownRoutesAlone prevents GoBGP from sending routes of one router to other routers, because this host carries no traffic between them.
func (s *sessions) ownRoutesAlone(ctx context.Context) error {
	own := &api.Policy{Name: "own", Statements: []*api.Statement{{
		Name:       "own",
		Conditions: &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_LOCAL},
		Actions:    &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT},
	}}}
	if err := s.bgp.AddPolicy(ctx, &api.AddPolicyRequest{Policy: own}); err != nil {
		return err
	}
	for _, direction := range []api.PolicyDirection{api.PolicyDirection_POLICY_DIRECTION_IMPORT, api.PolicyDirection_POLICY_DIRECTION_EXPORT} {
		err := s.bgp.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
			Direction: direction, Policies: []*api.Policy{{Name: "own"}}, DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT,
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

// add starts a session.
func (s *sessions) add(p policy.Peer) error {
	peer := &api.Peer{
		Conf: &api.PeerConf{
			NeighborAddress: p.Address.String(), PeerAsn: p.AS, LocalAsn: s.upstream.LocalAS(p), AuthPassword: s.passwords[p.Address.String()],
		},
		Timers: &api.Timers{Config: &api.TimersConfig{
			HoldTime: uint64(p.HoldTime.Seconds()), KeepaliveInterval: max(1, uint64(p.HoldTime.Seconds())/3), ConnectRetry: connectRetry,
			IdleHoldTimeAfterReset: connectRetry,
		}},
		Transport: &api.Transport{},
	}
	if p.Local.IsValid() {
		peer.Transport.LocalAddress = p.Local.String()
	}
	if p.Hops > 0 { // RFC 5082, 3: packets from farther away have a lower TTL
		peer.TtlSecurity = &api.TtlSecurity{Enabled: true, TtlMin: uint32(math.MaxUint8 - p.Hops + 1)}
	}
	if p.Restart > 0 {
		peer.GracefulRestart = &api.GracefulRestart{Enabled: true, RestartTime: uint32(p.Restart.Seconds())}
	}
	for _, f := range p.Families {
		most := uint32(mostFlowSpec)
		if f == policy.IPv4Unicast || f == policy.IPv6Unicast {
			most = mostUnicast
		}
		family := apiFamily(families[f])
		peer.AfiSafis = append(peer.AfiSafis, &api.AfiSafi{
			Config:            &api.AfiSafiConfig{Family: family, Enabled: true},
			PrefixLimits:      &api.PrefixLimit{Family: family, MaxPrefixes: most},
			MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: p.Restart > 0}},
		})
	}
	return s.bgp.AddPeer(context.Background(), &api.AddPeerRequest{Peer: peer})
}

func apiFamily(f bgp.Family) *api.Family {
	return &api.Family{Afi: api.Family_Afi(f.Afi()), Safi: api.Family_Safi(f.Safi())}
}

// fits reports whether the sessions can stay with another policy. In that case only the routers that differ must change.
func (s *sessions) fits(u *policy.Upstream) bool {
	return s.upstream.AS == u.AS && s.upstream.RouterID == u.RouterID
}

// change changes the sessions to the sessions of another policy.
func (s *sessions) change(u *policy.Upstream, passwords map[string]string) error {
	was, had := s.upstream, s.passwords
	s.upstream, s.passwords = u, passwords
	same := func(p, o policy.Peer) bool {
		p.Max = o.Max
		return reflect.DeepEqual(p, o) && passwords[p.Address.String()] == had[p.Address.String()]
	}
	for _, p := range was.Peers {
		if !slices.ContainsFunc(u.Peers, func(o policy.Peer) bool { return same(p, o) }) {
			if err := s.bgp.DeletePeer(context.Background(), &api.DeletePeerRequest{Address: p.Address.String()}); err != nil {
				return err
			}
		}
	}
	for _, p := range u.Peers {
		if !slices.ContainsFunc(was.Peers, func(o policy.Peer) bool { return same(p, o) }) {
			if err := s.add(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// close ends the sessions. If gracefully is true, the routers keep the routes until this process has started again, or until the graceful restart
// time is over.
func (s *sessions) close(gracefully bool) {
	_ = s.bgp.StopBgp(context.Background(), &api.StopBgpRequest{AllowGracefulRestart: gracefully})
	s.bgp.Stop()
}

// announce sends a route to all routers that accept its family.
func (s *sessions) announce(a *wire.Announcement) error {
	p, err := pathOf(s.upstream, a)
	if err == nil {
		_, err = s.bgp.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{p}})
	}
	if err == nil {
		s.out[a.Key()] = sent{p, routeText(a.Family(), p)}
	}
	return err
}

// has reports whether an announcement is announced with its present content.
func (s *sessions) has(a *wire.Announcement) bool {
	is, ok := s.out[a.Key()]
	text, err := RouteText(s.upstream, a)
	return ok && err == nil && is.text == text
}

// withdraw withdraws a route.
func (s *sessions) withdraw(key string) error {
	err := s.bgp.DeletePath(apiutil.DeletePathRequest{Paths: []*apiutil.Path{s.out[key].path}})
	if err == nil {
		delete(s.out, key)
	}
	return err
}

// again restarts sessions that were ended againWait ago or earlier because the router sent too many routes.
func (s *sessions) again(now time.Time) error {
	if now.Sub(s.looked) < againLook {
		return nil
	}
	s.looked = now
	was, is := s.many, map[string]time.Time{}
	err := s.bgp.ListPeer(context.Background(), &api.ListPeerRequest{}, func(p *api.Peer) {
		if address := p.GetConf().GetNeighborAddress(); p.GetState().GetAdminState() == api.PeerState_ADMIN_STATE_PFX_CT {
			is[address] = now
			if since, known := was[address]; known {
				is[address] = since
			}
		}
	})
	for address, since := range is {
		if err == nil && now.Sub(since) >= againWait {
			delete(is, address)
			err = s.bgp.EnablePeer(context.Background(), &api.EnablePeerRequest{Address: address})
		}
	}
	s.many = is
	return err
}

// states returns the states of the sessions.
func (s *sessions) states() (list []wire.Session, err error) {
	found := map[string]*api.Peer{}
	err = s.bgp.ListPeer(context.Background(), &api.ListPeerRequest{EnableAdvertised: true}, func(p *api.Peer) { found[p.Conf.NeighborAddress] = p })
	for _, p := range s.upstream.Peers {
		if is := found[p.Address.String()]; is != nil {
			list = append(list, sessionOf(p, is))
		}
	}
	return list, err
}

func sessionOf(p policy.Peer, is *api.Peer) wire.Session {
	s := wire.Session{Peer: p.Address, AS: p.AS, Families: []policy.Family{}}
	state := is.GetState()
	s.State = strings.ToLower(strings.TrimPrefix(state.GetSessionState().String(), "SESSION_STATE_"))
	s.Restarting = is.GetGracefulRestart().GetPeerRestarting()
	if down := is.GetTimers().GetState().GetDowntime(); down.GetSeconds() > 0 { // GoBGP uses 0 for "never"
		s.Lost = down.AsTime()
	}
	if s.State == wire.Established {
		if up := is.GetTimers().GetState().GetUptime(); up != nil {
			s.Since = up.AsTime()
		}
		s.Families = common(p.Families, state.GetRemoteCap())
	} else {
		s.Why = why(state)
	}
	for _, f := range is.GetAfiSafis() {
		s.Announced += int(f.GetState().GetAdvertised())
		if f.GetState().GetFamily().GetSafi() == api.Family_SAFI_FLOW_SPEC_UNICAST {
			s.Received += int(f.GetState().GetReceived())
		}
	}
	return s
}

// why returns the reason why a session is not established.
func why(state *api.PeerState) string {
	if state.GetAdminState() == api.PeerState_ADMIN_STATE_PFX_CT {
		return fmt.Sprintf("the router sent more routes than this host takes, %d and %d FlowSpec routes: have it send none; the session begins again %v later", mostUnicast, mostFlowSpec, againWait)
	}
	reason := strings.TrimPrefix(state.GetDisconnectReason().String(), "DISCONNECT_REASON_")
	if reason == "UNSPECIFIED" {
		return "it does not answer: see address, password_file, ttl_security, and whether it knows this host"
	}
	text := strings.ToLower(strings.ReplaceAll(reason, "_", " "))
	if m := state.GetDisconnectMessage(); m != "" {
		text += ": " + m
	}
	return text
}

// common returns the families that both this host and the router accept.
func common(ours []policy.Family, caps []*api.Capability) []policy.Family {
	theirs := []policy.Family{}
	for _, f := range ours {
		family := apiFamily(families[f])
		if slices.ContainsFunc(caps, func(c *api.Capability) bool {
			mp := c.GetMultiProtocol().GetFamily()
			return mp.GetAfi() == family.Afi && mp.GetSafi() == family.Safi
		}) {
			theirs = append(theirs, f)
		}
	}
	return theirs
}

// received returns the FlowSpec routes of the routers. If there are too many, it omits all routes of the router with the most routes. So one router
// cannot displace the routes of other routers. Omitting single routes would be wrong, because one of them may let packets pass that another route
// drops.
func (s *sessions) received() (r wire.Received, err error) {
	r.Routes = []wire.Route{}
	of, sizes, all := map[netip.Addr][]wire.Route{}, map[netip.Addr]int{}, 0
	for _, p := range s.upstream.Peers {
		for _, f := range []policy.Family{policy.IPv4FlowSpec, policy.IPv6FlowSpec} {
			if !slices.Contains(p.Families, f) {
				continue
			}
			some, err := s.receivedOf(p, f)
			if err != nil {
				return r, err
			}
			for i := range some {
				sizes[p.Address] += routeSize + len(some[i].NLRI) + len(some[i].Attributes)
			}
			of[p.Address] = append(of[p.Address], some...)
		}
		all += sizes[p.Address]
	}
	for all > mostReceived {
		most := slices.MaxFunc(s.upstream.Peers, func(a, b policy.Peer) int { return sizes[a.Address] - sizes[b.Address] }).Address
		all -= sizes[most]
		delete(of, most)
		delete(sizes, most)
		r.Left = append(r.Left, most)
	}
	for _, p := range s.upstream.Peers {
		r.Routes = append(r.Routes, of[p.Address]...)
	}
	return r, nil
}

func (s *sessions) receivedOf(p policy.Peer, f policy.Family) (list []wire.Route, err error) {
	request := apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_ADJ_IN, Name: p.Address.String(), Family: families[f]}
	err = s.bgp.ListPath(request, func(nlri bgp.NLRI, paths []*apiutil.Path) {
		for _, path := range paths {
			r := wire.Route{Peer: p.Address, AS: p.AS, External: s.upstream.External(p), Family: f, Stale: path.Stale}
			raw, bad := nlri.Serialize()
			for _, a := range path.Attrs {
				if a.GetType() == bgp.BGP_ATTR_TYPE_MP_REACH_NLRI {
					continue // the same NLRI was received before
				}
				attr, failed := a.Serialize()
				if failed != nil {
					bad = failed
				}
				r.Attributes = append(r.Attributes, attr...)
			}
			if bad == nil {
				r.NLRI = raw
				list = append(list, r)
			}
		}
	})
	return list, err
}

// peersOf returns the addresses of the routers that accept a family.
func (s *sessions) peersOf(f policy.Family, up []wire.Session) (list []netip.Addr) {
	for _, is := range up {
		if is.State == wire.Established && slices.Contains(is.Families, f) {
			list = append(list, is.Peer)
		}
	}
	return list
}
