// SPDX-License-Identifier: Apache-2.0

package hub_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/floodwall/floodwall/cmd/floodwall-hub/hub"
	"github.com/floodwall/floodwall/internal/fleet/node"
	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// hostile returns a connection with the key of a node. The connection has none of the restrictions of the node's own code.
func (f *fleet) hostile(name string) *nats.Conn {
	f.t.Helper()
	key, _ := nkeys.CreateUser()
	public, _ := key.PublicKey()
	if err := f.hub.Enrol(name, public); err != nil {
		f.t.Fatal(err)
	}
	c, err := nats.Connect("", nats.InProcessServer(f), nats.Nkey(public, key.Sign), nats.CustomInboxPrefix(wire.Inbox(name)),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), nats.NoReconnect())
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(c.Close)
	return c
}

func banOf(p string, s wire.Statement) wire.Offer {
	if s.Seq == 0 {
		s.Seq = uint64(time.Now().UnixMicro())
	}
	return wire.Offer{{Prefix: netip.MustParsePrefix(p), Statement: s}}
}

// TestHostileNode uses a node of the fleet that makes forbidden bans, sends statements of other nodes and of the hub, and lifts the bans of others.
// The node also makes the hub publish for it, repeats old messages, floods, and subscribes to messages for others. A real node must enter none of its
// bans, and must continue to work.
func TestHostileNode(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a, b := f.join("a"), f.join("b")
	evil := f.hostile("evil")
	until := time.Now().Add(time.Hour).UnixMilli()
	a.ban("198.51.100.1/32", time.Hour)
	eventually(t, "b drops what a bans", func() bool { return b.drops("198.51.100.1/32") })

	heard, err := evil.SubscribeSync(">")
	if err == nil {
		for _, subject := range []string{"fw.inbox.a.>", "fw.ban.>", "fw.node.>", "$JS.>", "fw.admin.>", "fw.member.>", "fw.policy.>"} {
			if _, err = evil.SubscribeSync(subject); err != nil {
				t.Fatal(err)
			}
		}
	}
	request := func(subject string, body []byte) wire.Answer {
		t.Helper()
		m, err := evil.Request(subject, body, time.Minute)
		if err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
		answer, err := wire.ParseAnswer(m.Data)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	bad := map[string]wire.Offer{
		"192.0.0.0/16": banOf("192.0.0.0/16", wire.Statement{Until: until}),
		"::/0":         banOf("::/0", wire.Statement{Until: until}),
		"192.0.2.1/32": banOf("192.0.2.1/32", wire.Statement{Until: time.Now().Add(wire.Longest + time.Hour).UnixMilli()}),
		"192.0.2.2/32": banOf("192.0.2.2/32", wire.Statement{Until: until, Seq: uint64(time.Now().Add(time.Minute).UnixMicro())}),
	}
	for p, o := range bad {
		if got := request(wire.OfferSubject("evil"), o.Bytes()); len(got.Outcomes) != 1 || got.Outcomes[0] != wire.Refused || got.Text == "" {
			t.Errorf("%s: %v %q, want it refused with a reason", p, got.Outcomes, got.Text)
		}
	}
	one := banOf("192.0.2.9/32", wire.Statement{Until: until})
	batch := wire.Batch{Now: time.Now(), Epoch: 1, Records: []wire.Stored{{Number: 1 << 40, Record: wire.Record{Prefix: one[0].Prefix,
		Statements: []wire.Statement{{Origin: "a", Seq: one[0].Seq, Until: until}}}}}}
	for subject, body := range map[string][]byte{ // subjects on which the node may not publish
		wire.OfferSubject("a"): one.Bytes(), wire.Live: batch.Bytes(), wire.Beat: wire.Pulse{Hub: 9, Now: time.Now().Add(time.Hour), Epoch: 9, Through: 1 << 50}.Bytes(),
		wire.BanSubject(one[0].Prefix): wire.EncodeRecord(batch.Records[0].Record), wire.Inbox("b") + ".sync.1": batch.Bytes(),
		"fw.admin.revoke": []byte(`{"name":"a"}`), "fw.member.a": []byte(`{"name":"a","state":"revoked"}`), "fw.join.evil": []byte(`{"key":"U"}`),
		"$JS.API.STREAM.DELETE.FW_BANS": nil, wire.OfferSubject("evil"): []byte("\x01\xff\xff\xff\xff\x0f"), wire.SyncSubject("evil"): {9},
	} {
		_ = evil.Publish(subject, body)
	}
	// The hub must answer only to the inbox of the node that sent the request.
	_ = evil.PublishRequest(wire.SyncSubject("evil"), wire.Live, wire.After(0).Bytes())
	_ = evil.PublishRequest(wire.OfferSubject("evil"), wire.Inbox("b")+".ban.1", one.Bytes())
	// A lift by evil must apply only at evil.
	if got := request(wire.OfferSubject("evil"), banOf("198.51.100.1/32", wire.Statement{}).Bytes()); got.Outcomes[0] != wire.Taken {
		t.Errorf("a lift for itself: %v %q", got.Outcomes, got.Text)
	}
	// A lift without a ban is stored, because its ban may arrive later.
	if got := request(wire.OfferSubject("evil"), banOf("198.18.0.1/32", wire.Statement{}).Bytes()); got.Outcomes[0] != wire.Taken {
		t.Errorf("a lift of nothing: %v %q", got.Outcomes, got.Text)
	}
	if all, err := f.command().Nodes(t.Context()); err != nil || all[0].Prefixes != 2 {
		t.Errorf("the hub knows of other prefixes than the ban and the lift: %v %v", all, err)
	}
	flood := wire.Offer{}
	for i := range 4000 {
		flood = append(flood, banOf(netip.PrefixFrom(netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}), 32).String(), wire.Statement{Until: until})...)
	}
	later, began := 0, time.Now()
	for range 30 {
		if got := request(wire.OfferSubject("evil"), flood.Bytes()); got.Outcomes[0] == wire.Later {
			later++
		}
	}
	if took := time.Since(began); later == 0 && took < 25*time.Second { // a hub accepts 60,000 statements at once, and 2,000 a second
		t.Errorf("120,000 statements in %v are all taken", took)
	}
	a.ban("198.51.100.2/32", time.Hour)
	eventually(t, "b drops what a bans after all that", func() bool { return b.drops("198.51.100.2/32") })
	for p := range bad {
		if b.drops(p) {
			t.Errorf("b drops %s", p)
		}
	}
	if b.drops("192.0.2.9/32") || !b.drops("198.51.100.1/32") {
		t.Error("b drops what evil said for others, or does not drop what evil lifted for others")
	}
	for {
		m, err := heard.NextMsg(100 * time.Millisecond)
		if err != nil {
			break
		}
		if strings.HasPrefix(m.Subject, "fw.inbox.a") || strings.HasPrefix(m.Subject, "fw.node.a") {
			t.Errorf("evil hears %s", m.Subject)
		}
	}
}

// TestHubSpared bans the addresses of the hubs, and prefixes that contain them, at a node and at the controller. No node may enter these bans,
// because it could then no longer receive the lifts of the bans.
func TestHubSpared(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	b := f.join("b", func(file *node.File) {
		file.Hubs = append(file.Hubs, "nats://203.0.113.5:4222", "nats://[2001:db8:5::5]:4222", "nats://localhost:4222")
	})
	c := f.join("c")
	evil := f.hostile("evil")
	until := time.Now().Add(time.Hour).UnixMilli()
	bans := []string{"203.0.113.5/32", "203.0.113.0/24", "2001:db8:5::5/128", "2001:db8:5::/64"}
	for _, p := range append(bans, "127.0.0.1/32", "203.0.113.6/32") {
		if err := evil.PublishRequest(wire.OfferSubject("evil"), wire.Inbox("evil")+".1", banOf(p, wire.Statement{Until: until}).Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.command().Say(t.Context(), "", []netip.Prefix{netip.MustParsePrefix("203.0.112.0/20")}, time.Hour, "test"); err != nil {
		t.Fatal(err)
	}
	for _, h := range []*host{b, c} {
		eventually(t, "a ban of others", func() bool { return h.drops("203.0.113.6/32") && (h == b || h.drops("203.0.112.0/20")) })
	}
	for _, p := range append(bans, "203.0.112.0/20") {
		if eventually(t, "c drops "+p, func() bool { return c.drops(p) }); b.drops(p) {
			t.Errorf("b drops %s, which has a hub", p)
		}
	}
	eventually(t, "c drops localhost, and b does not, which is the name of a hub there", func() bool { return c.drops("127.0.0.1/32") && !b.drops("127.0.0.1/32") })
}

// TestFloodingNode sends messages of each kind as fast as possible from a node of the fleet. The hub must end the node's connection, and accept no
// other connection of it for a while. Meanwhile the bans of a real node must arrive at another node.
func TestFloodingNode(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a, b := f.join("a"), f.join("b")
	a.ban("198.51.100.1/32", time.Hour)
	eventually(t, "b drops what a bans", func() bool { return b.drops("198.51.100.1/32") })
	for name, body := range map[string][]byte{"ban": {1, 0}, "sync": {9}, "summary": nil, "state": []byte("{"), "policy": {1}} {
		evil := f.hostile("evil-" + name)
		banned := netip.PrefixFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(len(name))}), 32).String()
		a.ban(banned, time.Hour)
		ended := false
		for deadline := time.Now().Add(5 * time.Minute); !ended && time.Now().Before(deadline); ended = evil.IsClosed() {
			for range 1000 {
				_ = evil.PublishRequest("fw.node.evil-"+name+"."+name, wire.Inbox("evil-"+name)+".x", body)
			}
		}
		if !ended {
			t.Fatalf("a node that floods %s is not disconnected", name)
		}
		eventually(t, "b drops what a bans in a flood of "+name, func() bool { return b.drops(banned) })
		if name != "ban" {
			continue
		}
		if again, err := evil.Opts.Connect(); err == nil {
			again.Close()
			t.Error("a node that flooded the hub is connected again at once")
		}
	}
	if !a.agent.Status().Connected || !b.agent.Status().Connected {
		t.Error("a node that floods nothing is disconnected")
	}
}

// TestFloodOfBans sends 10,000 messages a second from a node of the fleet, each with a ban, to a hub that waits for its disk. The hub must end the
// node's connection. Meanwhile the bans of another node must arrive. TestFairQueues shows that these bans do not wait for the flood; the times in
// this test depend on the machine.
func TestFloodOfBans(t *testing.T) {
	t.Parallel()
	f := newFleet(t, func(c *hub.Config) { c.Fast = false })
	a, b := f.join("a"), f.join("b")
	evil := f.hostile("evil")
	began, sent := time.Now(), 0
	flooding := make(chan bool)
	go func() {
		defer close(flooding)
		for ; !evil.IsClosed() && time.Since(began) < 5*time.Minute; time.Sleep(time.Millisecond) {
			for due := int(time.Since(began).Seconds() * 10_000); sent < due; sent++ {
				p := netip.PrefixFrom(netip.AddrFrom4([4]byte{203, byte(sent >> 16), byte(sent >> 8), byte(sent)}), 32)
				o := banOf(p.String(), wire.Statement{Until: time.Now().Add(time.Hour).UnixMilli()})
				_ = evil.PublishRequest(wire.OfferSubject("evil"), wire.Inbox("evil")+".x", o.Bytes())
			}
		}
	}()
	longest := time.Duration(0)
	for n := 0; !evil.IsClosed() && time.Since(began) < 5*time.Minute; n++ {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, byte(n >> 8), byte(n)}), 32).String()
		said := time.Now()
		a.ban(p, time.Hour)
		eventually(t, "b drops what a bans in a flood of bans", func() bool { return b.drops(p) })
		longest = max(longest, time.Since(said))
		time.Sleep(100 * time.Millisecond)
	}
	<-flooding
	if !evil.IsClosed() {
		t.Errorf("a node that sends 10,000 messages a second is not disconnected: %d sent", sent)
	}
	t.Logf("disconnected after %v and %d messages; the longest way of another node's ban took %v", time.Since(began), sent, longest)
}

// TestHostileSight uses a node that sends summaries of other nodes and the fleet's view, and impossible or false summaries of its own. The node must
// change only its own row, and everything else that it adds must have the node's name.
func TestHostileSight(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a, evil, command := f.join("a"), f.hostile("evil"), f.command()
	eventually(t, "a is seen", func() bool {
		a.agent.Report(seen(1000))
		v, err := command.View(t.Context())
		return err == nil && v.Nodes == 1
	})
	lie := wire.EncodeSummary(seen(9_000_000))
	too := seen(1 << 60)
	for subject, body := range map[string][]byte{
		wire.SummarySubject("a"): lie, wire.SummarySubject("no-node"): lie, wire.Views: wire.EncodeView(&wire.View{Hub: "evil", Nodes: 1}),
		wire.SummarySubject("evil"): wire.EncodeSummary(too), "fw.node.evil.more.summary": lie,
	} {
		_ = evil.Publish(subject, body)
	}
	_ = evil.PublishRequest("fw.admin.view", wire.Inbox("evil")+".1", nil)
	_ = evil.Publish(wire.SummarySubject("evil"), append(lie, make([]byte, 100_000)...))
	for range 1000 {
		_ = evil.Publish(wire.SummarySubject("evil"), lie)
	}
	var v *wire.View
	eventually(t, "evil is seen", func() bool {
		var err error
		v, err = command.View(t.Context())
		return err == nil && v.Nodes > 1
	})
	if len(v.Rows) != 2 || v.Rows[0].Node != "evil" || v.Rows[0].Dropped.Packets != 900_000 || v.Rows[1].Node != "a" || v.Rows[1].Dropped.Packets != 100 {
		t.Errorf("rows: %+v", v.Rows)
	}
	if s := v.Talkers[0]; len(v.Talkers) != 1 || s.Nodes != 2 || s.Node != "evil" || s.Packets-s.Here != 100 {
		t.Errorf("what evil says of a source is not told apart: %+v", v.Talkers)
	}
	if got := a.agent.View(); got != nil && got.Hub != "hub" {
		t.Errorf("a believes %+v", got)
	}
	if _, err := command.Revoke(t.Context(), "evil"); err != nil {
		t.Fatal(err)
	}
	if v, err := command.View(t.Context()); err != nil || v.Nodes != 1 {
		t.Errorf("after evil was revoked: %+v %v", v, err)
	}
}

// TestRevoked revokes a node. The node's connection must end at once, its key must open no other connection, and its bans must be lifted.
func TestRevoked(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a, b := f.join("a"), f.join("b")
	a.ban("198.51.100.1/32", time.Hour)
	eventually(t, "b drops what a bans", func() bool { return b.drops("198.51.100.1/32") })
	evil := f.hostile("evil")
	command := f.command()
	for _, name := range []string{"a", "evil"} {
		lifted, err := command.Revoke(t.Context(), name)
		if err != nil || (lifted == 1) != (name == "a") {
			t.Fatalf("%s: %d bans lifted: %v", name, lifted, err)
		}
	}
	eventually(t, "b drops no more", func() bool { return !b.drops("198.51.100.1/32") })
	eventually(t, "the connection ends", evil.IsClosed)
	a.ban("198.51.100.2/32", time.Hour)
	b.ban("198.51.100.3/32", time.Hour)
	c := f.join("c")
	eventually(t, "c drops what b bans", func() bool { return c.drops("198.51.100.3/32") })
	if c.drops("198.51.100.2/32") || a.agent.Status().Connected {
		t.Error("a node that was revoked is heard")
	}
	if lifted, err := command.Revoke(t.Context(), "a"); err != nil || lifted != 0 {
		t.Errorf("revoked again: %d bans lifted: %v", lifted, err)
	}
	if _, err := command.Revoke(t.Context(), "nobody"); err == nil {
		t.Error("a node that there is not is revoked")
	}
}

// TestDamagedFile uses incomplete node files. None may be accepted.
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	key, _ := nkeys.CreateUser()
	seed, _ := key.Seed()
	for name, file := range map[string]node.File{
		"half a key": {Name: "a", Seed: string(seed[:20]), Hubs: []string{"tls://192.0.2.1"}},
		"no hub":     {Name: "a", Seed: string(seed)}, "another's name": {Name: "a.b", Seed: string(seed), Hubs: []string{"tls://192.0.2.1"}},
		"no certificate": {Name: "a", Seed: string(seed), Hubs: []string{"tls://192.0.2.1"}, CA: "x"},
		"no controller":  {Name: "a", Seed: string(seed), Hubs: []string{"tls://192.0.2.1"}, Controller: "x"},
	} {
		if _, err := node.Use(t.TempDir(), file); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}
