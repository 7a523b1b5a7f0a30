// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/testutil"
)

func TestMain(m *testing.M) { os.Exit(testutil.OwnMounts(m)) }

// newRouter returns a GoBGP that listens on an address for sessions of this host.
func newRouter(t *testing.T, address string, as uint32) *server.BgpServer {
	t.Helper()
	b := server.NewBgpServer(server.LoggerOption(quiet(), nil))
	go b.Serve()
	t.Cleanup(b.Stop)
	ctx := context.Background()
	err := b.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{Asn: as, RouterId: address, ListenPort: 179, ListenAddresses: []string{address}}})
	if err == nil {
		families := []*api.AfiSafi{}
		for _, f := range []bgp.Family{bgp.RF_IPv4_UC, bgp.RF_FS_IPv4_UC} {
			families = append(families, &api.AfiSafi{Config: &api.AfiSafiConfig{Family: apiFamily(f), Enabled: true}})
		}
		err = b.AddPeer(ctx, &api.AddPeerRequest{Peer: &api.Peer{
			Conf: &api.PeerConf{NeighborAddress: "127.0.0.1", PeerAsn: 64500}, Transport: &api.Transport{PassiveMode: true, LocalAddress: address}, AfiSafis: families,
		}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// twoRouters returns a Wanted with sessions to the routers at 127.0.0.2 and 127.0.0.3.
func twoRouters() *wire.Wanted {
	return wantedFor(func(w *wire.Wanted) {
		peer := w.Upstream.Peers[0]
		peer.Address, peer.Local = netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.1")
		other := peer
		other.Address, other.AS = netip.MustParseAddr("127.0.0.3"), 64502
		w.Upstream.Peers = []policy.Peer{peer, other}
	})
}

// routesOf returns the routes that a router has.
func routesOf(b *server.BgpServer) map[string]bool {
	all := map[string]bool{}
	for _, f := range []bgp.Family{bgp.RF_IPv4_UC, bgp.RF_FS_IPv4_UC} {
		_ = b.ListPath(apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: f}, func(n bgp.NLRI, _ []*apiutil.Path) { all[n.String()] = true })
	}
	return all
}

// flowsTo returns FlowSpec routes for n addresses.
func flowsTo(t *testing.T, n int) (list []*apiutil.Path) {
	t.Helper()
	for i := range n {
		to := netip.PrefixFrom(netip.AddrFrom4([4]byte{203, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
		p, err := flowPath(&wire.Announcement{Kind: wire.FlowSpec, Flow: wire.Flow{To: to, Proto: []uint8{17}}})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

// loopbackUp sets the loopback device of the test's namespace up.
func loopbackUp(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestManyRoutes makes a router send more routes than this host accepts. Its session must end, and the status must say why. The session with another
// router must go on, with its routes. After a while the session starts again. The router then sends fewer routes, so it must stay.
func TestManyRoutes(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	loopbackUp(t)
	hostile, other := newRouter(t, "127.0.0.2", 64501), newRouter(t, "127.0.0.3", 64502)
	many, few := flowsTo(t, testutil.Scaled(5_000, 100_000)), flowsTo(t, 3)
	for b, list := range map[*server.BgpServer][]*apiutil.Path{hostile: many, other: few} {
		if _, err := b.AddPath(apiutil.AddPathRequest{Paths: list}); err != nil {
			t.Fatal(err)
		}
	}
	s := newSpeaker(t, t.TempDir())
	if err := s.Put(twoRouters()); err != nil {
		t.Fatal(err)
	}
	is := func(what string, ended bool, routes int) {
		t.Helper()
		if !testutil.Eventually(time.Minute, func() bool {
			st, err := s.Status()
			r, failed := s.Received()
			return err == nil && failed == nil && strings.Contains(st.Sessions[0].Why, "sent more routes than this host takes") == ended &&
				(st.Sessions[0].State == wire.Established) != ended && st.Sessions[1].State == wire.Established && len(r.Routes) == routes
		}) {
			st, err := s.Status()
			r, _ := s.Received()
			t.Fatalf("%s: %d routes, %v %+v", what, len(r.Routes), err, st.Sessions)
		}
	}
	is("more routes than this host takes", true, 3)
	update := func(now time.Time) {
		t.Helper()
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := s.update(now); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	update(now.Add(againLook))
	update(now.Add(againWait))
	is("before the session may begin again", true, 3)
	if err := hostile.DeletePath(apiutil.DeletePathRequest{Paths: many[3:]}); err != nil {
		t.Fatal(err)
	}
	update(now.Add(againLook + againWait))
	is("the session begins again", false, 6)
}

// TestLargeRoutes makes a router send routes with so many communities that an answer would be too large. The answer must have only the routes of
// another router. When the first router sends fewer, it must have all routes.
func TestLargeRoutes(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	loopbackUp(t)
	hostile, other := newRouter(t, "127.0.0.2", 64501), newRouter(t, "127.0.0.3", 64502)
	large := flowsTo(t, 1700)
	communities := make([]uint32, 800)
	for i := range communities {
		communities[i] = uint32(i)
	}
	for _, p := range large {
		p.Attrs = append(p.Attrs, bgp.NewPathAttributeCommunities(communities))
	}
	for b, list := range map[*server.BgpServer][]*apiutil.Path{hostile: large, other: flowsTo(t, 3)} {
		if _, err := b.AddPath(apiutil.AddPathRequest{Paths: list}); err != nil {
			t.Fatal(err)
		}
	}
	s := newSpeaker(t, t.TempDir())
	if err := s.Put(twoRouters()); err != nil {
		t.Fatal(err)
	}
	is := func(what string, received, routes, left int) {
		t.Helper()
		if !testutil.Eventually(time.Minute, func() bool {
			st, err := s.Status()
			r, failed := s.Received()
			return err == nil && failed == nil && st.Sessions[0].Received == received && len(r.Routes) == routes && len(r.Left) == left
		}) {
			st, err := s.Status()
			r, failed := s.Received()
			t.Fatalf("%s: %d routes, %v left out, %v %v %+v", what, len(r.Routes), r.Left, err, failed, st.Sessions)
		}
	}
	is("large routes", 1700, 3, 1)
	if err := hostile.DeletePath(apiutil.DeletePathRequest{Paths: large[2:]}); err != nil {
		t.Fatal(err)
	}
	is("two large routes", 2, 5, 0)
}

// TestNoTransit uses two routers. Routes of one must not go to the other: this host forwards no traffic between them.
func TestNoTransit(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	loopbackUp(t)
	a, b := newRouter(t, "127.0.0.2", 64501), newRouter(t, "127.0.0.3", 64502)
	foreign := wire.Announcement{Kind: wire.FlowSpec, Flow: wire.Flow{To: netip.MustParsePrefix("203.0.113.7/32"), Proto: []uint8{17}}}
	flow, err := flowPath(&foreign)
	if err != nil {
		t.Fatal(err)
	}
	foreign.Kind, foreign.Flow = wire.RTBH, wire.Flow{To: netip.MustParsePrefix("203.0.113.8/32")}
	hole, err := blackHole(&policy.Upstream{RTBH: policy.RTBH{NextHop4: netip.MustParseAddr("127.0.0.2")}}, &foreign)
	if err != nil {
		t.Fatal(err)
	}
	hole.Attrs = hole.Attrs[:1:1] // without NO_EXPORT
	next, err := bgp.NewPathAttributeNextHop(netip.MustParseAddr("127.0.0.2"))
	if err != nil {
		t.Fatal(err)
	}
	hole.Attrs = append(hole.Attrs, next)
	if _, err := a.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{flow, hole}}); err != nil {
		t.Fatal(err)
	}
	s := newSpeaker(t, t.TempDir())
	w := twoRouters()
	if err := s.Put(w); err != nil {
		t.Fatal(err)
	}
	wait := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				st, err := s.Status()
				t.Fatalf("waiting for %s: %v %+v", what, err, st)
			}
		}
	}
	wait("both routers to have the announcement", func() bool { return routesOf(a)["192.0.2.7/32"] && routesOf(b)["192.0.2.7/32"] })
	wait("the flow of the first", func() bool { r, err := s.Received(); return err == nil && len(r.Routes) == 1 })
	// Routes that arrived before the announcement's end would have been sent on before it: a session keeps the order.
	w.Announcements[0].Flow.To = netip.MustParsePrefix("192.0.2.9/32")
	if err := s.Put(wantedFor(func(n *wire.Wanted) {
		n.Upstream = w.Upstream
		n.Announcements[0].Flow.To = netip.MustParsePrefix("192.0.2.9/32")
	})); err != nil {
		t.Fatal(err)
	}
	wait("the second announcement alone", func() bool { r := routesOf(b); return r["192.0.2.9/32"] && !r["192.0.2.7/32"] })
	if r := routesOf(b); len(r) != 1 {
		t.Errorf("the second router has %v", r)
	}
}
