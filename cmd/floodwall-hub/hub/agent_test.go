// SPDX-License-Identifier: Apache-2.0

package hub_test

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/floodwall/floodwall/cmd/floodwall-hub/hub"
	"github.com/floodwall/floodwall/internal/fleet/node"
	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/test/testutil"
)

// fleet is a hub and nodes in this process. Their connections use no sockets.
type fleet struct {
	t    *testing.T
	dir  string
	conf *hub.Config
	hub  *hub.Hub

	options []func(*hub.Config)

	mu sync.Mutex // guards hub
}

// InProcessConn gives nodes a connection to the present hub.
func (f *fleet) InProcessConn() (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hub.Server().InProcessConn()
}

// loseStream simulates the loss of the hub's disk. The nodes' keys are kept.
func (f *fleet) loseStream() {
	f.t.Helper()
	if err := os.RemoveAll(filepath.Join(f.dir, "nats/jetstream/$G/streams/FW_BANS")); err != nil {
		f.t.Fatal(err)
	}
}

func newFleet(t *testing.T, options ...func(*hub.Config)) *fleet {
	t.Helper()
	f := &fleet{t: t, dir: t.TempDir(), options: options}
	peer, err := hub.NewPeer("hub", "127.0.0.1")
	if err == nil {
		_, err = hub.Init(f.dir, []hub.Peer{peer}, hub.LeastDisk)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.start()
	t.Cleanup(func() { f.hub.Close() })
	return f
}

func (f *fleet) start() {
	f.t.Helper()
	c, err := hub.Read(f.dir)
	if err != nil {
		f.t.Fatal(err)
	}
	c.Plain, c.Fast = true, true
	for _, o := range f.options {
		o(c)
	}
	h, err := hub.Start(context.Background(), c, func(string) {})
	if err != nil {
		f.t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conf, f.hub = c, h
}

// host is a node's host: the prefixes that it drops, and until when.
type host struct {
	t        *testing.T
	agent    *node.Agent
	never    netip.Prefix
	capacity int
	stop     func()

	mu      sync.Mutex
	dropped map[netip.Prefix]time.Time
}

func (h *host) Block(_ context.Context, bans []node.Ban) (map[netip.Prefix]error, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range bans {
		h.dropped[b.Prefix] = b.Until
	}
	return nil, nil
}

func (h *host) Unblock(_ context.Context, prefixes []netip.Prefix, _ bool) (were []netip.Prefix, _ error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range prefixes {
		if _, ok := h.dropped[p]; ok {
			were = append(were, p)
			delete(h.dropped, p)
			go h.agent.Local([]node.Local{{Prefix: p, Gone: true}}, false) // the log of bans reports it in the same way
		}
	}
	return were, nil
}

func (h *host) Never(context.Context) (func(netip.Prefix) bool, error) {
	return func(p netip.Prefix) bool { return h.never.IsValid() && h.never.Overlaps(p) }, nil
}

func (h *host) Capacity() int { return h.capacity }

func (h *host) drops(p string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Before(h.dropped[netip.MustParsePrefix(p)])
}

// ban bans a prefix on the host, without the fleet.
func (h *host) ban(p string, length time.Duration) {
	now := time.Now()
	h.agent.Local([]node.Local{{Prefix: netip.MustParsePrefix(p), Start: now, End: now.Add(length), Why: "test", Manual: true}}, false)
}

func (h *host) lift(p string) {
	h.agent.Local([]node.Local{{Prefix: netip.MustParsePrefix(p), Gone: true}}, false)
}

// join makes a host join the fleet.
func (f *fleet) join(name string, options ...func(*node.File)) *host {
	f.t.Helper()
	key, err := nkeys.CreateUser()
	if err != nil {
		f.t.Fatal(err)
	}
	public, _ := key.PublicKey()
	seed, _ := key.Seed()
	if err := f.hub.Enrol(name, public); err != nil {
		f.t.Fatal(err)
	}
	file := &node.File{Name: name, Seed: string(seed), Hubs: []string{"nats://in.process"}, Controller: f.conf.Controller}
	for _, o := range options {
		o(file)
	}
	h := &host{t: f.t, dropped: map[netip.Prefix]time.Time{}}
	f.run(h, file)
	return h
}

func (f *fleet) run(h *host, file *node.File) {
	f.t.Helper()
	a, err := node.New(file, h, func(string, error) {}, nats.InProcessServer(f))
	if err != nil {
		f.t.Fatal(err)
	}
	h.agent = a
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = a.Run(ctx) })
	h.stop = func() { cancel(); running.Wait() }
	f.t.Cleanup(h.stop)
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	if !testutil.Eventually(5*time.Minute, holds) {
		t.Fatalf("not after five minutes: %s", what)
	}
}

// TestBanEverywhere bans and lifts prefixes at one node, and the other nodes must follow. The node itself, the other nodes, and the controller make
// the lifts.
func TestBanEverywhere(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a, b, c := f.join("a"), f.join("b"), f.join("c", func(n *node.File) { n.Reporters = 2 })
	b.never = netip.MustParsePrefix("203.0.113.0/28")
	both := func(p string, want bool) func() bool {
		return func() bool { return b.drops(p) == want && c.drops(p) == want }
	}

	a.ban("198.51.100.7/32", time.Hour)
	eventually(t, "b drops what a bans", func() bool { return b.drops("198.51.100.7/32") })
	if c.drops("198.51.100.7/32") {
		t.Error("c wants two reporters, and drops by one")
	}
	b.ban("198.51.100.7/32", time.Hour)
	eventually(t, "c drops what two ban", func() bool { return c.drops("198.51.100.7/32") })
	a.lift("198.51.100.7/32")
	eventually(t, "c drops no more", func() bool { return !c.drops("198.51.100.7/32") })

	a.ban("2001:db8:7::/48", time.Hour)
	eventually(t, "b drops IPv6", func() bool { return b.drops("2001:db8:7::/48") })
	b.lift("2001:db8:7::/48") // an operator of b
	a.ban("203.0.113.0/24", time.Hour)
	a.ban("192.0.2.1/32", time.Hour)
	eventually(t, "b drops what came last", func() bool { return b.drops("192.0.2.1/32") })
	if b.drops("203.0.113.0/24") {
		t.Error("b drops a prefix with an address that it never bans")
	}

	command := f.command()
	ten := netip.MustParsePrefix("10.0.0.0/8")
	if err := command.Say(t.Context(), "", []netip.Prefix{ten}, time.Hour, "test"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all drop what the controller bans", both("10.0.0.0/8", true))
	if err := command.Say(t.Context(), "", []netip.Prefix{ten, netip.MustParsePrefix("192.0.2.1/32")}, 0, ""); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nobody drops what the controller lifts", both("10.0.0.0/8", false))
	eventually(t, "b drops no more", func() bool { return !b.drops("192.0.2.1/32") })

	a.agent.Report(seen(1000))
	b.agent.Report(seen(2000))
	eventually(t, "the hub sees an attack at a and b", func() bool {
		v, err := command.View(t.Context())
		return err == nil && v.Nodes == 2 && v.Attacked == 2 && v.Dropped.Packets == 300 && len(v.Attacks) == 1 && v.Attacks[0].Count == 2 &&
			len(v.Talkers) == 1 && v.Talkers[0].Packets == 300 && v.Talkers[0].Error == 2
	})
	eventually(t, "c is told", func() bool { v := c.agent.View(); return v != nil && v.Hub == "hub" && v.Attacked > 0 })
}

// seen returns the summary of a SYN flood with this many packets in ten seconds, from one source.
func seen(packets uint64) *wire.Summary {
	return &wire.Summary{
		Span: 10 * time.Second, Decided: [4]wire.Amount{1: {Packets: packets}}, OneIn: 10,
		Attacks: []wire.Attack{{Kind: "SYN flood", Service: "tcp/443", Started: 1, Packets: packets / 10}},
		Talkers: []wire.Talker{{Prefix: netip.MustParsePrefix("198.51.100.7/32"), Packets: packets, Error: 10}},
	}
}

// command returns a connection of a command to the hub.
func (f *fleet) command() *hub.Client {
	f.t.Helper()
	c, err := hub.Dial(f.conf, nats.InProcessServer(f))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(c.Close)
	return c
}

// TestHubAway ends the hub. The node must continue to work, and when the hub runs again, all nodes must get the bans that were made in the meantime.
// The same holds for earlier bans when the hub has lost all of its data.
func TestHubAway(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a, b := f.join("a"), f.join("b")
	a.ban("198.51.100.1/32", time.Hour)
	eventually(t, "b drops what a bans", func() bool { return b.drops("198.51.100.1/32") })
	f.hub.Close()
	a.ban("198.51.100.2/32", time.Hour)
	a.ban("198.51.100.3/32", 300*time.Millisecond)
	a.lift("198.51.100.1/32")
	time.Sleep(400 * time.Millisecond)
	if !b.drops("198.51.100.1/32") {
		t.Error("without a hub b forgets what it drops")
	}
	f.start()
	eventually(t, "b drops what a banned meanwhile", func() bool { return b.drops("198.51.100.2/32") })
	eventually(t, "b drops no more what a lifted meanwhile", func() bool { return !b.drops("198.51.100.1/32") })
	if b.drops("198.51.100.3/32") {
		t.Error("b drops what ended before the hub was back")
	}
	f.hub.Close()
	f.loseStream()
	f.start()
	c := f.join("c")
	eventually(t, "c learns from a hub that lost all", func() bool { return c.drops("198.51.100.2/32") })
}
