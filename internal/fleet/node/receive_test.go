// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/test/testutil"
)

var one = netip.MustParsePrefix("198.51.100.1/32")

// newAgent makes an agent that is not connected. key is the controller's public key.
func newAgent(t *testing.T, key string) *Agent {
	t.Helper()
	a, err := New(&File{Name: "me", Controller: key, State: t.TempDir()}, nil, func(string, error) {})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestForgedController uses a hub that changes the end of a signed ban, turns the ban into a lift, and removes the signature. The node must keep the
// ban as the controller signed it.
func TestForgedController(t *testing.T) {
	t.Parallel()
	key, _ := nkeys.CreateUser()
	public, _ := key.PublicKey()
	a := newAgent(t, public)
	s := wire.Statement{Origin: wire.Controller, Seq: wire.NextSequence(time.Now(), 0), Until: time.Now().Add(time.Hour).UnixMilli()}
	s.Sig, _ = key.Sign(wire.Signed(one, &s))
	a.record(wire.Record{Prefix: one, Statements: []wire.Statement{s}})
	for range 2 { // the second time, the node does not verify the known statements again
		longer, lift, unsigned := s, s, s
		longer.Until += 1000
		lift.Until = 0
		unsigned.Sig = nil
		a.record(wire.Record{Prefix: one, Statements: []wire.Statement{s, longer, lift, unsigned}})
	}
	if r := a.table.Get(one); len(r.Statements) != 1 || !r.Holds(&s) || a.counts.Refused != 6 {
		t.Errorf("the record is %v, %d statements were refused", r.Statements, a.counts.Refused)
	}
}

// TestLiftWaits uses a lift that waits for the enforcer for more than a minute.
func TestLiftWaits(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "")
	a.never = func(netip.Prefix) bool { return false }
	a.later(changes{lift: []netip.Prefix{one}})
	a.paused = time.Time{}
	a.table.Merge(wire.Record{Prefix: one, Statements: []wire.Statement{{Origin: "a", Seq: wire.NextSequence(time.Now(), 0)}}})
	for range 61 {
		a.sweep()
	}
	if c, _ := a.due(); len(c.lift) != 1 {
		t.Errorf("after a minute it is to do: %+v", c)
	}
}

// TestOwnLength uses bans of this host with prefix lengths that nodes must not ban. These bans must not be offered to the hub, not even after the hub
// has lost its data.
func TestOwnLength(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "")
	for _, p := range []string{"198.51.100.0/25", "2001:db8::/60", "198.51.0.0/16", "198.51.100.1/32"} {
		a.Local([]Local{{Prefix: netip.MustParsePrefix(p), Start: time.Now(), End: time.Now().Add(time.Hour)}}, false)
	}
	for _, epoch := range []uint64{0, 1} {
		a.epochIs(epoch)
		if said := a.gather(); len(said) != 1 || said[0].Prefix != one {
			t.Errorf("it is said: %v", said)
		}
		a.prefixes.decided(one, a.prefixes.of(one).own.statement.Seq)
	}
	if s := a.Status(); s.Own != 4 {
		t.Errorf("this host has %d bans", s.Own)
	}
}

// TestShare makes one node, and then all nodes together, ban more prefixes than their shares of a set. The controller's ban must be entered. When
// bans end, the bans that were not entered before must be entered.
func TestShare(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "")
	a.never, a.share.capacity = func(netip.Prefix) bool { return false }, 160
	now := time.Now()
	say := func(origin string, block byte, length time.Duration) {
		for i := range 100 {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, block, byte(i)}), 32)
			s := wire.Statement{Origin: origin, Seq: wire.NextSequence(now, 0)}
			if length > 0 {
				s.Until = now.Add(length).UnixMilli()
			} else {
				s.Seq++
			}
			a.table.Merge(wire.Record{Prefix: p, Statements: []wire.Statement{s}})
			a.prefixes.dirty.add(p)
		}
	}
	entered := func() int {
		c, _ := a.due()
		for _, b := range c.bans {
			a.prefixes.enter(b.Prefix, b.Until)
		}
		return len(c.bans)
	}
	for i, row := range []struct {
		origin string
		length time.Duration
		want   int
	}{{"a", time.Hour, 30}, {"b", time.Hour, 30}, {"c", time.Hour, 0}, {wire.Controller, time.Hour, 100}} {
		say(row.origin, byte(i), row.length)
		if n := entered(); n != row.want {
			t.Errorf("%d of 100 bans of %s are entered, want %d", n, row.origin, row.want)
		}
	}
	if s := a.Status(); s.Crowded != 240 || s.Refused != 240 {
		t.Errorf("%d are left out, %d were refused", s.Crowded, s.Refused)
	}
	say("a", 0, 0)
	say(wire.Controller, 3, 0)
	entered()
	for range 30 {
		a.sweep()
	}
	if n := entered(); n != 30 || a.share.of["b"] != 30 || a.share.of["c"] != 30 {
		t.Errorf("%d bans are entered after others ended: %v", n, a.share.of)
	}
}

// TestKept uses a host that has its own ban, which the agent does not know, and refuses the fleet's ban. The agent must not count the host's ban as
// entered by the fleet, and must enter the fleet's ban when the host's ban has ended.
func TestKept(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "")
	a.never = func(netip.Prefix) bool { return false }
	keeps := true
	a.enforcer = keeper(func() bool { return keeps })
	a.record(wire.Record{Prefix: one, Statements: []wire.Statement{
		{Origin: "other", Seq: wire.NextSequence(time.Now(), 0), Until: time.Now().Add(time.Hour).UnixMilli()},
	}})
	a.enforce(t.Context())
	if s := a.Status(); s.Entered != 0 || s.Received != 0 || s.Refused != 0 {
		t.Errorf("beside a ban of the host: %+v", s)
	}
	keeps = false
	for range 30 {
		a.sweep()
	}
	a.enforce(t.Context())
	if s := a.Status(); s.Entered != 1 || s.Received != 1 {
		t.Errorf("after the ban of the host: %+v", s)
	}
}

// keeper is a host that keeps its own bans while the function returns true.
type keeper func() bool

func (k keeper) Block(_ context.Context, bans []Ban) (map[netip.Prefix]error, error) {
	if !k() {
		return nil, nil
	}
	return map[netip.Prefix]error{bans[0].Prefix: ErrKept}, nil
}

func (keeper) Unblock(context.Context, []netip.Prefix, bool) ([]netip.Prefix, error) { return nil, nil }

func (keeper) Never(context.Context) (func(netip.Prefix) bool, error) { return nil, nil }

func (keeper) Capacity() int { return 0 }

// TestLateTime delays the first pulse of a hub by 4 s, as after a partition. A ban that is entered with the late time must get its right end when the
// next pulse arrives in time.
func TestLateTime(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "")
	a.never = func(netip.Prefix) bool { return false }
	h := recorder{}
	a.enforcer = h
	beat := func(late time.Duration) {
		a.pulse(&nats.Msg{Data: wire.Pulse{Hub: 1, Now: time.Now().Add(-late), Epoch: 1}.Bytes()})
	}
	beat(4 * time.Second)
	until := time.Now().Add(time.Hour)
	a.record(wire.Record{Prefix: one, Statements: []wire.Statement{{Origin: "other", Seq: wire.NextSequence(time.Now(), 0), Until: until.UnixMilli()}}})
	a.enforce(t.Context())
	if late := h[one].Sub(until); late < 3*time.Second {
		t.Fatalf("by the late beat the ban ends %v late, want some 4 s", late)
	}
	late := time.Duration(0)
	if !testutil.Eventually(time.Minute, func() bool { // on a busy machine a beat may be handled late
		beat(0)
		a.enforce(t.Context())
		late = h[one].Sub(until)
		return late.Abs() <= 2*slack
	}) {
		t.Errorf("by the beat in time the ban ends %v late", late)
	}
}

// recorder is a host that records the ends of bans.
type recorder map[netip.Prefix]time.Time

func (r recorder) Block(_ context.Context, bans []Ban) (map[netip.Prefix]error, error) {
	for _, b := range bans {
		r[b.Prefix] = b.Until
	}
	return nil, nil
}

func (recorder) Unblock(context.Context, []netip.Prefix, bool) ([]netip.Prefix, error) {
	return nil, nil
}

func (recorder) Never(context.Context) (func(netip.Prefix) bool, error) { return nil, nil }

func (recorder) Capacity() int { return 0 }
