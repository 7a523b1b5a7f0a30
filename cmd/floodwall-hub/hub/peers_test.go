// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/floodwall/floodwall/internal/fleet/node"
	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/test/testutil"
)

// banning is a node's host that records its bans.
type banning struct {
	nobody
	mu   sync.Mutex
	list []netip.Prefix
}

func (b *banning) Block(_ context.Context, bans []node.Ban) (map[netip.Prefix]error, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ban := range bans {
		b.list = append(b.list, ban.Prefix)
	}
	return nil, nil
}

func (b *banning) has(p string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.list, netip.MustParsePrefix(p))
}

// TestMembersSpared makes a node and the controller ban the address of another node, and prefixes that contain it. The hub must refuse these bans
// with a reason. A node must not enter such a ban even if another hub has accepted it. A ban of the next address must work. The address of a revoked
// node must no longer be protected.
func TestMembersSpared(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	key, _ := nkeys.CreateUser()
	public, _ := key.PublicKey()
	seed, _ := key.Seed()
	for name, public := range map[string]string{"a": newPublicKey(t), "evil": newPublicKey(t), "b": public} {
		if err := h.Enrol(name, public); err != nil {
			t.Fatal(err)
		}
	}
	h.seenAt("a", netip.MustParseAddr("203.0.113.7"))
	host := &banning{}
	agent, err := node.New(&node.File{Name: "b", Seed: string(seed), Hubs: []string{"nats://in.process"}, Controller: h.config.Controller}, host,
		func(string, error) {}, nats.InProcessServer(h.server))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = agent.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	if !testutil.Eventually(time.Minute, func() bool { return slices.Contains(agent.Fleet(), netip.MustParseAddr("203.0.113.7")) }) {
		t.Fatal("node b does not know the address of node a")
	}
	said := func(origin, p string) wire.Offer {
		now := time.Now()
		return wire.Offer{{Prefix: netip.MustParsePrefix(p), Statement: wire.Statement{Origin: origin, Seq: wire.NextSequence(now, 0), Until: now.Add(time.Hour).UnixMilli()}}}
	}
	for p, want := range map[string]wire.Outcome{"203.0.113.7/32": wire.Refused, "203.0.113.0/24": wire.Refused, "203.0.113.8/32": wire.Taken} {
		if got := h.request(offer{origin: "evil", said: said("evil", p)}); got[0] != want {
			t.Errorf("a ban of %s: %v, want %v", p, got, want)
		}
	}
	command, err := Dial(h.config, nats.InProcessServer(h.server))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(command.Close)
	wide := []netip.Prefix{netip.MustParsePrefix("203.0.0.0/16")}
	if err := command.Say(t.Context(), "", wide, time.Hour, ""); err == nil || !strings.Contains(err.Error(), "has node a of the fleet in it, at 203.0.113.7") {
		t.Errorf("the controller's ban of 203.0.0.0/16: %v", err)
	}
	other := wire.Record{Prefix: netip.MustParsePrefix("203.0.113.7/32"), Statements: []wire.Statement{said("evil", "203.0.113.7/32")[0].Statement}}
	if err := h.send(wire.Live, []wire.Stored{{Number: 1000, Record: other}}, 0); err != nil { // the record is from a hub that accepts such bans
		t.Fatal(err)
	}
	if !testutil.Eventually(time.Minute, func() bool { return host.has("203.0.113.8/32") && agent.Status().Refused > 0 }) || host.has("203.0.113.7/32") {
		t.Errorf("node b bans %v, %+v", host.list, agent.Status())
	}
	if _, err := command.Revoke(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := command.Say(t.Context(), "", wide, time.Hour, ""); err != nil {
		t.Errorf("after node a was revoked: %v", err)
	}
}
