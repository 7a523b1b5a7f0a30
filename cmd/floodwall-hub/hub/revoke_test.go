// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// newHub starts a hub without ports.
func newHub(t *testing.T) *Hub {
	t.Helper()
	dir := t.TempDir()
	peer, err := NewPeer("hub", "127.0.0.1")
	if err == nil {
		_, err = Init(dir, []Peer{peer}, LeastDisk)
	}
	c, readErr := Read(dir)
	if err != nil || readErr != nil {
		t.Fatal(err, readErr)
	}
	c.Plain, c.Fast = true, true
	h, err := Start(context.Background(), c, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func newPublicKey(t *testing.T) string {
	t.Helper()
	key, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, _ := key.PublicKey()
	return public
}

// TestRevokeLeavesNothing revokes a node while some of its bans wait for the intake. Another ban arrives later. When the command gets its answer, no
// ban of the node may exist.
func TestRevokeLeavesNothing(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	if err := h.Enrol("a", newPublicKey(t)); err != nil {
		t.Fatal(err)
	}
	command, err := Dial(h.config, nats.InProcessServer(h.server))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(command.Close)
	bans := func(block byte) offer {
		o := offer{origin: "a"}
		for i := range 200 {
			now := time.Now()
			o.said = append(o.said, wire.Said{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, block, byte(i)}), 32),
				Statement: wire.Statement{Origin: "a", Seq: uint64(now.UnixMicro()), Until: now.Add(time.Hour).UnixMilli()}})
		}
		return o
	}
	left := func() (n int) {
		for r := range h.view.table.All() {
			if _, ok := r.Effect(time.Now(), "b", 1); ok {
				n++
			}
		}
		return n
	}
	h.enqueue(bans(0))
	h.enqueue(bans(1))
	for try := range 2 {
		if _, err := command.Revoke(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		h.view.mu.Lock()
		if n := left(); n > 0 {
			t.Errorf("%d bans are left after revocation %d", n, try)
		}
		h.view.mu.Unlock()
		h.enqueue(bans(byte(2 + try)))
	}
}

// TestOneKeyOneNode makes a second node use the key of the first one, and opens many connections with one invitation.
func TestOneKeyOneNode(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	key := newPublicKey(t)
	if err := h.Enrol("a", key); err != nil {
		t.Fatal(err)
	}
	if err := h.Enrol("b", key); err == nil {
		t.Error("two nodes have one key")
	}
	if err := h.update(Member{Name: "c", State: Invited, Secret: hashed("s"), Expires: time.Now().Add(time.Hour)}, 0); err != nil {
		t.Fatal(err)
	}
	var conns []*nats.Conn
	for range maxConnections + 1 {
		c, err := nats.Connect("", nats.InProcessServer(h.server), nats.UserInfo("join.c", "s"), nats.CustomInboxPrefix(wire.Inbox("join_c")), nats.NoReconnect())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		conns = append(conns, c)
	}
	m, err := conns[maxConnections].Request(wire.Join+".c", []byte(`{"key":"`+key+`","secret":"s"}`), time.Minute)
	if err != nil || string(m.Data) != `{"error":"another node has this key"}` {
		t.Errorf("the join of another's key: %v %s", err, m.Data)
	}
	for end := time.Now().Add(time.Minute); !conns[0].IsClosed(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections of one invitation are open", len(conns))
		}
	}
}

// TestOldInvitation connects with a known invitation. It keeps the connection while the invitation expires, another invitation replaces it, and the
// node is revoked. After that nobody may join over the connection. The node itself may request a lost answer again.
func TestOldInvitation(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	invite := func(secret string, holds time.Duration) {
		t.Helper()
		_, seq := h.members.get("c")
		if err := h.update(Member{Name: "c", State: Invited, Secret: hashed(secret), Expires: time.Now().Add(holds)}, seq); err != nil {
			t.Fatal(err)
		}
	}
	connect := func(secret string) *nats.Conn {
		t.Helper()
		c, err := nats.Connect("", nats.InProcessServer(h.server), nats.UserInfo("join.c", secret), nats.CustomInboxPrefix(wire.Inbox("join_c")), nats.NoReconnect())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	joins := func(c *nats.Conn, key, secret string) string {
		t.Helper()
		body, _ := json.Marshal(JoinRequest{key, secret})
		m, err := c.Request(wire.Join+".c", body, time.Minute)
		a := JoinAnswer{}
		if err == nil {
			err = json.Unmarshal(m.Data, &a)
		}
		if err != nil {
			t.Fatal(err)
		}
		return a.Error
	}
	invite("first", time.Hour)
	thief, evil := connect("first"), newPublicKey(t)
	refused := func(what string) {
		t.Helper()
		for _, secret := range []string{"first", ""} {
			if why := joins(thief, evil, secret); why == "" || h.members.joined("c") {
				t.Errorf("%s: an old connection joins with the secret %q", what, secret)
			}
		}
	}
	invite("first", -time.Second)
	refused("the invitation has ended")
	invite("second", time.Hour)
	refused("another invitation has taken its place")
	own, key := connect("second"), newPublicKey(t)
	for range 2 {
		if why := joins(own, key, "second"); why != "" || !h.members.joined("c") {
			t.Fatalf("the node itself does not join: %s", why)
		}
	}
	if why := joins(own, evil, "second"); why != "the invitation has been used" {
		t.Errorf("a second key with the same invitation: %q", why)
	}
	m, seq := h.members.get("c")
	m.State, m.Secret = Revoked, ""
	if err := h.update(m, seq); err != nil {
		t.Fatal(err)
	}
	refused("the node was revoked")
}

// TestTwoHubsChange lets another hub record addresses of nodes at the moment when this hub revokes them, before the stream has delivered the other
// hub's change. The nodes must be revoked, and keep the addresses.
func TestTwoHubsChange(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	for i := range 20 {
		name := fmt.Sprint("node-", i)
		if err := h.Enrol(name, newPublicKey(t)); err != nil {
			t.Fatal(err)
		}
		m, _ := h.members.get(name)
		m.Addresses = []netip.Addr{netip.MustParseAddr("192.0.2.7")}
		text, _ := json.Marshal(m)
		if _, err := h.js.Publish(t.Context(), wire.Members+"."+name, text); err != nil {
			t.Fatal(err)
		}
		var r Result
		answer, err := h.conn.Request(adminRevoke, fmt.Appendf(nil, `{"name":%q}`, name), time.Minute)
		if err == nil {
			err = json.Unmarshal(answer.Data, &r)
		}
		if err != nil || r.Error != "" {
			t.Fatalf("%s: %v %s", name, err, r.Error)
		}
		if m, _ := h.members.get(name); m.State != Revoked || len(m.Addresses) != 1 {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// TestSyncBounded lets a node request all records repeatedly. The node must get few answers, because each answer costs the hub much CPU time.
func TestSyncBounded(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	key, _ := nkeys.CreateUser()
	public, _ := key.PublicKey()
	if err := h.Enrol("a", public); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	const records = 5 * syncRecords
	for i := range records {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{198, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
		h.view.take(wire.Record{Prefix: p, Statements: []wire.Statement{{Origin: "b", Seq: wire.NextSequence(now, 0), Until: now.Add(time.Hour).UnixMilli()}}}, uint64(i+1))
	}
	h.view.reached(records)
	c, err := nats.Connect("", nats.InProcessServer(h.server), nats.Nkey(public, key.Sign), nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	answers, err := c.SubscribeSync(wire.Inbox("a") + ".>")
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		if err := c.PublishRequest(wire.SyncSubject("a"), wire.Inbox("a")+".sync.1", wire.After(0).Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	whole := 0
	for wait := time.Minute; ; wait = 3 * time.Second {
		m, err := answers.NextMsg(wait)
		if err != nil {
			break
		}
		if b, err := wire.ParseBatch(m.Data); err != nil {
			t.Fatal(err)
		} else if b.Through == records {
			whole++
		}
	}
	each := 1 + records/syncRecords
	if most := int(syncBurst+time.Since(now).Seconds()*syncRate) / each; whole == 0 || whole > most {
		t.Errorf("%d of 200 requests for %d records are answered, want 1 to %d", whole, records, most)
	}
}

// TestWrongClock uses the controller on a host with a wrong clock. The command must report the wrong clock, and must not claim that bans are lifted.
func TestWrongClock(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	c, err := Dial(h.config, nats.InProcessServer(h.server))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	p := []netip.Prefix{netip.MustParsePrefix("198.51.100.0/22")}
	if err := c.Say(t.Context(), "", p, time.Hour, "scans"); err != nil {
		t.Fatal(err)
	}
	for _, c.ahead = range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		if err := c.Say(t.Context(), "", p, 0, ""); err == nil || !strings.Contains(err.Error(), "the clock of this host is") {
			t.Errorf("a lift with a clock that is %v ahead: %v", c.ahead, err)
		}
	}
	if c.ahead = 0; c.Say(t.Context(), "", p, 0, "") != nil {
		t.Error("a lift with the right clock is not taken")
	}
}

// TestClockNeverSet uses a node whose clock was never set. The node must accept the certificate of a hub, because the node gets the time only from
// the hub.
func TestClockNeverSet(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	pool, _, err := h.config.authority()
	if err != nil {
		t.Fatal(err)
	}
	nodes, _, err := h.config.tls()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(nodes.Certificates[0].Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []time.Time{time.Unix(60, 0), time.Now().AddDate(9, 0, 0)} {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: pool, DNSName: "127.0.0.1", CurrentTime: at}); err != nil {
			t.Errorf("at %v: %v", at, err)
		}
	}
}
