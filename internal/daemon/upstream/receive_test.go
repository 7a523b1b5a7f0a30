// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/policy"
)

var router, colleague = netip.MustParseAddr("192.0.2.254"), netip.MustParseAddr("192.0.2.253")

// upstream returns a policy with a router of another network, and one of the host's own.
func upstream() *policy.Upstream {
	families := []policy.Family{policy.IPv4FlowSpec, policy.IPv6FlowSpec}
	return &policy.Upstream{
		AS: 64500, Announce: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/48")},
		Peers: []policy.Peer{
			{Address: router, AS: 64501, Families: families, Restart: 5 * time.Second},
			{Address: colleague, AS: 64500, Families: families[:1], Restart: 5 * time.Second},
		},
		Receive: policy.Receive{Max: 4},
	}
}

const (
	path = "40020602010000fbf5" // AS 64501
	drop = "c010088006000000000000"
)

func unhex(text string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

// host returns a route of the router that drops all packets to 192.0.2.N.
func host(n byte) wire.Route {
	return wire.Route{Peer: router, AS: 64501, External: true, Family: policy.IPv4FlowSpec, NLRI: []byte{6, 1, 32, 192, 0, 2, n}, Attributes: unhex(path + drop)}
}

// TestCheck checks routes that may be obeyed, and routes that may not.
func TestCheck(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*wire.Route)
		kind   Kind // "": the route is obeyed
		text   string
	}{
		{"as it should be", func(*wire.Route) {}, "", ""},
		{"an unknown router", func(r *wire.Route) { r.Peer = netip.MustParseAddr("192.0.2.9") }, Foreign, "does not name 192.0.2.9"},
		{"a family of no session", func(r *wire.Route) { r.Peer, r.Family = colleague, policy.IPv6FlowSpec }, Foreign, "does not name the family"},
		{"unicast", func(r *wire.Route) { r.Family = policy.IPv4Unicast }, Foreign, "does not name the family"},
		{"another family than it says", func(r *wire.Route) { r.Family = policy.IPv6FlowSpec }, Unsupported, "begins at bit 192"},
		{"two in one", func(r *wire.Route) { r.NLRI = append(r.NLRI, r.NLRI...) }, Malformed, "bytes after its end"},
		{"cut off", func(r *wire.Route) { r.NLRI = r.NLRI[:5] }, Malformed, "says it has 6 bytes"},
		{"a flow label", func(r *wire.Route) { r.Family, r.NLRI = policy.IPv6FlowSpec, unhex("030d8101") }, Unsupported, "flow label: cannot be tested"},
		{"no destination", func(r *wire.Route) { r.NLRI = unhex("03038106") }, Foreign, "no destination"},
		{"all destinations", func(r *wire.Route) { r.NLRI = unhex("020100") }, Foreign, "0.0.0.0/0 is not inside"},
		{"a prefix around the own", func(r *wire.Route) { r.NLRI = unhex("050117c00002") }, Foreign, "192.0.2.0/23 is not inside"},
		{"another network's prefix", func(r *wire.Route) { r.NLRI = unhex("050118c63364") }, Foreign, "198.51.100.0/24 is not inside"},
		{"no path from another network", func(r *wire.Route) { r.Attributes = unhex(drop) }, Foreign, "does not begin with 64501"},
		{"another network's path", func(r *wire.Route) { r.Attributes = unhex("40020602010000fbf6" + drop) }, Foreign, "does not begin with 64501"},
		{"a path with this host", func(r *wire.Route) { r.Attributes = unhex("40020a02020000fbf50000fbf4" + drop) }, Foreign, "has the AS of this host"},
		{"a set as path", func(r *wire.Route) { r.Attributes = unhex("40020601010000fbf5" + drop) }, Foreign, "does not begin with 64501"},
		{"no path from the own network", func(r *wire.Route) { r.Peer, r.Attributes = colleague, unhex(drop) }, "", ""},
		{"it says that it is of the own network", func(r *wire.Route) { r.External, r.AS, r.Attributes = false, 64500, unhex(drop) }, Foreign, "does not begin"},
		{"attributes cut off", func(r *wire.Route) { r.Attributes = unhex(path + "c010") }, Malformed, "end within a header"},
		{"a value cut off", func(r *wire.Route) { r.Attributes = unhex(path + "c010088006") }, Malformed, "end within a value"},
		{"a long attribute", func(r *wire.Route) { r.Attributes = unhex(path + drop + "d0630003 010203") }, "", ""},
		{"two paths", func(r *wire.Route) { r.Attributes = unhex(path + path) }, Malformed, "path attribute 2 twice"},
		{"a path cut off", func(r *wire.Route) { r.Attributes = unhex("4002040202000f") }, Malformed, "AS path is cut off"},
		{"communities cut off", func(r *wire.Route) { r.Attributes = unhex(path + "c01004 80060000") }, Malformed, "communities are cut off"},
		{"a redirect", func(r *wire.Route) { r.Attributes = unhex(path + "c010088008fde800000001") }, Unsupported, "rt-redirect"},
		{"a redirect to IPv6", func(r *wire.Route) { r.Attributes = unhex(path + "c01914 000c" + strings.Repeat("00", 18)) }, Malformed, "only drops are supported"},
		{"an unknown action", func(r *wire.Route) { r.Attributes = unhex(path + "c010088042000000000000") }, Unsupported, "0x8042 is not known"},
	} {
		r := host(1)
		test.change(&r)
		_, why := check(&r, upstream())
		switch {
		case why == nil && test.kind != "":
			t.Errorf("%s: it is obeyed", test.name)
		case why != nil && (why.Kind != test.kind || !strings.Contains(why.Error(), test.text)):
			t.Errorf("%s: %s: %v, want %s: %s", test.name, why.Kind, why, test.kind, test.text)
		}
	}
}

// kernel is a fake of the temporary rules in the kernel.
type kernel struct {
	upstream *policy.Upstream
	rules    []manifest.Temporary
	changes  int
	fails    func([]manifest.Temporary) error
}

func (k *kernel) RunningPolicy(context.Context) (w control.RunningPolicy, err error) {
	w.Daemon.Upstream, w.Temporary = k.upstream, k.rules
	return w, nil
}

func (k *kernel) ChangeTemporary(_ context.Context, change func([]manifest.Temporary) ([]manifest.Temporary, error)) error {
	list, err := change(k.rules)
	if err == nil && k.fails != nil {
		err = k.fails(list)
	}
	if err == nil {
		k.rules = list
		k.changes++
	}
	return err
}

// fakeSpeaker is a fake of the process `floodwall-bgp`.
type fakeSpeaker struct {
	routes     []wire.Route
	state      string
	restarting bool
	lost       time.Time
	left       []netip.Addr
	err        error
}

func (s *fakeSpeaker) Received(context.Context) (wire.Received, error) {
	return wire.Received{Routes: s.routes, Left: s.left}, s.err
}

func (s *fakeSpeaker) Status(context.Context) (wire.Status, error) {
	return wire.Status{Sessions: []wire.Session{{Peer: router, State: s.state, Restarting: s.restarting, Lost: s.lost}, {Peer: colleague, State: s.state}}}, s.err
}

// scene is a Receiver with a simulated clock.
type scene struct {
	*testing.T
	kernel   kernel
	speaker  fakeSpeaker
	receiver Receiver
	now      time.Time
	said     []string
}

func newScene(t *testing.T) *scene {
	s := &scene{T: t, now: time.Now(), kernel: kernel{upstream: upstream()}, speaker: fakeSpeaker{state: wire.Established}}
	s.receiver = Receiver{Rules: &s.kernel, Routes: &s.speaker, Report: func(text string, err error) { s.said = append(s.said, fmt.Sprint(text, err)) }}
	return s
}

// step runs a step one second later. Afterwards there must be this many rules.
func (s *scene) step(when string, want int) {
	s.Helper()
	s.now = s.now.Add(look)
	if err := s.receiver.step(context.Background(), s.now); err != nil {
		s.said = append(s.said, err.Error())
	}
	if n := len(s.kernel.rules); n != want {
		s.Fatalf("%s: %d rules, want %d: %v\n%s", when, n, want, s.kernel.rules, strings.Join(s.said, "\n"))
	}
}

// TestReceiver checks the rules of routes while sessions go up and down.
func TestReceiver(t *testing.T) {
	s := newScene(t)
	other := manifest.Temporary{Name: "auto-1", Owner: "auto", Until: s.now.Add(24 * time.Hour)}
	s.kernel.rules = []manifest.Temporary{other}
	s.speaker.routes = []wire.Route{host(1), host(2)}
	s.step("two routes", 3)
	s.step("the same", 3)
	if s.kernel.changes != 1 {
		t.Errorf("%d transactions for routes that came together", s.kernel.changes)
	}
	s.speaker.routes = s.speaker.routes[:1]
	s.step("one is withdrawn", 2)
	s.speaker.state, s.speaker.routes = "idle", nil
	for range 4 {
		s.step("the session is lost", 2)
	}
	s.step("after 5 s", 2)
	s.step("the time of graceful restart is over", 1)
	s.speaker.state, s.speaker.routes = wire.Established, []wire.Route{host(1)}
	s.step("it is back", 2)
	s.speaker.err = wire.ErrNotRunning
	s.step("the process is gone", 2)
	s.receiver = Receiver{Rules: &s.kernel, Routes: &s.speaker, Report: s.receiver.Report}
	for range 5 {
		s.step("another daemon, while the process is gone", 2)
	}
	s.step("for longer", 1)
	s.speaker.err = nil
	s.step("it is back", 2)
	s.kernel.upstream.Receive.Max = 0
	s.step("the policy receives nothing", 1)
	if s.kernel.rules[0] != other {
		t.Errorf("the rule of another owner: %v", s.kernel.rules)
	}
}

// TestReceiverStale uses two routers. One requests a longer graceful restart time than the policy's, and one reconnects but never sends End-of-RIB.
// Stale routes must stay for the policy's time, and routes that a router announces again must stay in force.
func TestReceiverStale(t *testing.T) {
	s := newScene(t)
	stale := func(r wire.Route) wire.Route { r.Stale = true; return r }
	s.speaker.routes = []wire.Route{host(1), host(2)}
	s.step("two routes", 2)
	s.speaker.state, s.speaker.routes = "idle", []wire.Route{stale(host(1)), stale(host(2))}
	for range 5 {
		s.step("the router restarts", 2)
	}
	s.step("its time is over", 0)
	s.step("its time is over", 0)
	s.speaker.state, s.speaker.routes = wire.Established, []wire.Route{host(1), host(2)}
	s.step("it is back", 2)
	s.speaker.state, s.speaker.routes = "idle", []wire.Route{stale(host(1)), stale(host(2))}
	s.step("it restarts again", 2)
	s.speaker.state, s.speaker.restarting, s.speaker.routes = wire.Established, true, []wire.Route{host(1), stale(host(2))}
	for range 4 {
		s.step("it is back, and does not say End-of-RIB", 2)
	}
	for range 10 {
		s.step("nor later", 1)
	}
	s.speaker.routes = nil
	s.step("it withdraws the other route, in the restart that never ends", 0)
	if n := len(s.receiver.book.routes); n > 0 {
		t.Errorf("%d routes are remembered that nobody has", n)
	}
}

// TestReceiverLateLook ends a session long after the last look, as on a busy machine. It uses a router that restarts, and one that does not announce
// a restart. The time of the router's routes must begin when the session ended, and a second end must not prolong the time.
func TestReceiverLateLook(t *testing.T) {
	for _, restarts := range []bool{true, false} {
		s := newScene(t)
		s.speaker.routes = []wire.Route{host(1)}
		s.step("a route", 1)
		s.now = s.now.Add(4 * time.Second)
		s.speaker.state, s.speaker.lost = "idle", s.now
		if s.speaker.routes[0].Stale = true; !restarts {
			s.speaker.routes = nil
		}
		for range 3 {
			s.step("the session has ended", 1)
		}
		s.speaker.lost = s.now
		for range 2 {
			s.step("it ends again", 1)
		}
		s.step("its time is over", 0)
	}
}

// TestReceiverStaleAnew starts several daemons one after another while a router restarts. The router's rules must end when the restart time since the
// loss of the session is over.
func TestReceiverStaleAnew(t *testing.T) {
	for _, back := range []bool{false, true} {
		s := newScene(t)
		s.speaker.routes = []wire.Route{host(1)}
		s.step("a route", 1)
		s.speaker.state, s.speaker.lost = "idle", s.now
		s.speaker.routes[0].Stale = true
		for n := range 10 {
			if back {
				s.speaker.state, s.speaker.restarting = wire.Established, true
			}
			s.receiver = Receiver{Rules: &s.kernel, Routes: &s.speaker, Report: s.receiver.Report}
			s.step(fmt.Sprintf("daemon %d, the router is back: %v", n+1, back), map[bool]int{true: 1, false: 0}[n < 5])
		}
		s.speaker.routes[0].Stale = false
		s.step("it is announced again", 1)
	}
}

// TestBookMemory uses a router that announces other routes each second, during an endless restart and while its session goes up and down. The book
// must remember exactly the routes that the router has.
func TestBookMemory(t *testing.T) {
	u := upstream()
	u.Peers[0].Restart = time.Hour
	var b book
	now := time.Now()
	for n := range byte(4) {
		var routes []wire.Route
		for i := range mostRoutes {
			r := host(n)
			r.NLRI = []byte{10, 1, 32, 192, 0, 2, n, 5, 0x91, byte(i >> 8), byte(i)}
			routes = append(routes, r)
		}
		now = now.Add(look)
		b.take(routes, map[netip.Addr]session{router: {established: n < 2, restarting: true}}, now)
		held := b.held(u, now)
		if len(held) != mostRoutes || len(b.routes) != mostRoutes {
			t.Fatalf("second %d: of %d routes %d are in force and %d are remembered", n, mostRoutes, len(held), len(b.routes))
		}
		for _, r := range held {
			if r.NLRI[6] != n {
				t.Fatalf("second %d: a route of second %d stays, and one that the router has was forgotten", n, r.NLRI[6])
			}
		}
	}
}

// TestReceiverMany uses more routes than max. Routes in force must stay, even if new routes are evaluated first.
func TestReceiverMany(t *testing.T) {
	s := newScene(t)
	s.speaker.routes = []wire.Route{host(100), host(101)}
	s.step("two", 2)
	for n := range byte(50) {
		s.speaker.routes = append(s.speaker.routes, host(n))
	}
	s.step("many", 4)
	names := fmt.Sprint(s.kernel.rules)
	if !strings.Contains(names, "192.0.2.100/32") || !strings.Contains(names, "192.0.2.101/32") {
		t.Errorf("rules that were in force are gone: %s", names)
	}
	if f := s.receiver.Figures(); f.Refused[Excess] != 48 || f.Routes != 4 || f.Rules != 4 {
		t.Errorf("figures: %+v", f)
	}
}

// TestReceiverLeft uses a router whose routes `floodwall-bgp` omits because there are too many. This must be reported once, and the routes of another
// router must be obeyed.
func TestReceiverLeft(t *testing.T) {
	s := newScene(t)
	s.speaker.routes, s.speaker.left = []wire.Route{host(1)}, []netip.Addr{colleague}
	s.step("one router is left out", 1)
	s.step("still", 1)
	want := "a route from " + colleague.String() + " is refused: none of its routes is looked at"
	if f := s.receiver.Figures(); f.Refused[Excess] != 1 || strings.Count(strings.Join(s.said, "\n"), want) != 1 {
		t.Errorf("figures %+v, said %q", f, s.said)
	}
}

// TestReceiverFlaps changes routes each second for ten minutes. There must be only few transactions.
func TestReceiverFlaps(t *testing.T) {
	s := newScene(t)
	for n := range 600 {
		s.speaker.routes = []wire.Route{host(byte(n))}
		s.now = s.now.Add(look)
		if err := s.receiver.step(context.Background(), s.now); err != nil {
			t.Fatal(err)
		}
	}
	if most := 600/3 + changesAtOnce; s.kernel.changes > most {
		t.Errorf("%d transactions, want at most %d", s.kernel.changes, most)
	}
}

// TestReceiverFails uses a route whose rules cannot be loaded. The route must be refused, while other routes are added and removed.
func TestReceiverFails(t *testing.T) {
	s := newScene(t)
	s.speaker.routes = []wire.Route{host(1)}
	s.step("one", 1)
	s.kernel.fails = func(list []manifest.Temporary) error {
		if strings.Contains(fmt.Sprint(list), "192.0.2.66/32") {
			return fmt.Errorf("the program is too large")
		}
		return nil
	}
	s.speaker.routes = []wire.Route{host(66)}
	s.step("one that fails, and one withdrawn", 1)
	s.step("the withdrawn one goes", 0)
	s.speaker.routes = append(s.speaker.routes, host(2))
	s.step("others come", 1)
	s.kernel.fails = nil
	s.now = s.now.Add(pause)
	s.step("it is tried again", 2)
}

// TestReceiverPasses uses more routes that pass packets than the limit. No rule may drop packets that one of these routes might pass.
func TestReceiverPasses(t *testing.T) {
	s := newScene(t)
	s.speaker.routes = []wire.Route{host(1)}
	s.step("one", 1)
	for n := range mostEach + 1 {
		r := host(2)
		r.NLRI = []byte{10, 1, 32, 192, 0, 2, 2, 5, 0x91, byte(n >> 8), byte(n)}
		r.Attributes = unhex(path)
		s.speaker.routes = append(s.speaker.routes, r)
	}
	s.step("too many that pass", 0)
	s.speaker.routes = s.speaker.routes[:mostEach+1]
	s.step("as many as are looked at", 1)
}

// FuzzCheck checks routes with any bytes.
func FuzzCheck(f *testing.F) {
	f.Add([]byte{6, 1, 32, 192, 0, 2, 1}, unhex(path+drop), false)
	f.Add(unhex("0d01200020010db803 81110b812e"), unhex(path+drop), true)
	u := upstream()
	f.Fuzz(func(t *testing.T, nlri, attributes []byte, ipv6 bool) {
		r := wire.Route{Peer: router, Family: policy.IPv4FlowSpec, NLRI: nlri, Attributes: attributes}
		if ipv6 {
			r.Family = policy.IPv6FlowSpec
		}
		route, why := check(&r, u)
		if why == nil && !u.Own(route.Flow.DestinationPrefix()) {
			t.Fatalf("%v is obeyed", route.Flow)
		}
	})
}
