package speaker

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/internal/testutil"
	"github.com/floodwall/floodwall/policy"
)

func TestMain(m *testing.M) { os.Exit(testutil.OwnMounts(m)) }

// newRouter is a GoBGP that listens at an address for this host.
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

// routesOf are the routes of a router.
func routesOf(b *server.BgpServer) map[string]bool {
	all := map[string]bool{}
	for _, f := range []bgp.Family{bgp.RF_IPv4_UC, bgp.RF_FS_IPv4_UC} {
		_ = b.ListPath(apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: f}, func(n bgp.NLRI, _ []*apiutil.Path) { all[n.String()] = true })
	}
	return all
}

// TestNoTransit has two routers. What one sends does not go to the other: this host is no way between them.
func TestNoTransit(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
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
	w := wantedFor(func(w *wire.Wanted) {
		peer := w.Upstream.Peers[0]
		peer.Address, peer.Local = netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.1")
		other := peer
		other.Address, other.AS = netip.MustParseAddr("127.0.0.3"), 64502
		w.Upstream.Peers = []policy.Peer{peer, other}
	})
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
	// What came before the announcement's end would have gone on before it: order is kept within a session.
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
