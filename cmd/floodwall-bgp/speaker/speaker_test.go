// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/bgp/flowspec"
	"github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/testutil"
)

// wantedFor returns a Wanted with one announcement for a router that does not exist. The router's address belongs to this machine.
func wantedFor(change func(*wire.Wanted)) *wire.Wanted {
	now := time.Now().Round(0)
	w := &wire.Wanted{
		Upstream: &policy.Upstream{
			AS: 64500, RouterID: netip.MustParseAddr("192.0.2.1"), Announce: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Live: true,
			RTBH: policy.RTBH{Communities: []uint32{65535<<16 | 666}},
			Peers: []policy.Peer{{Address: netip.MustParseAddr("127.0.0.255"), AS: 64501, HoldTime: 90 * time.Second, Max: 2,
				Families: []policy.Family{policy.IPv4FlowSpec, policy.IPv4Unicast}}},
		},
		Announcements: []wire.Announcement{{Kind: wire.RTBH, Flow: wire.Flow{To: netip.MustParsePrefix("192.0.2.7/32")}, Owner: "alice", Start: now, End: now.Add(time.Hour)}},
	}
	if change != nil {
		change(w)
	}
	return w
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func newSpeaker(t *testing.T, dir string) *Speaker {
	s := New(dir, "test", quiet(), quiet())
	t.Cleanup(func() {
		if s.sessions != nil {
			s.sessions.close(false)
		}
	})
	return s
}

// TestPutRefuses sends invalid data as a hostile or faulty client could. No announcement may be made from the data.
func TestPutRefuses(t *testing.T) {
	s := newSpeaker(t, t.TempDir())
	a := func(change func(*wire.Announcement)) *wire.Wanted {
		return wantedFor(func(w *wire.Wanted) { change(&w.Announcements[0]) })
	}
	for want, w := range map[string]*wire.Wanted{
		"not within":       a(func(a *wire.Announcement) { a.Flow.To = netip.MustParsePrefix("198.51.100.7/32") }),
		"gives up one":     a(func(a *wire.Announcement) { a.Flow.To = netip.MustParsePrefix("192.0.2.0/24") }),
		"no destination":   a(func(a *wire.Announcement) { a.Flow.To = netip.Prefix{} }),
		"takes nothing":    a(func(a *wire.Announcement) { a.Flow.Proto = []uint8{17} }),
		"no kind":          a(func(a *wire.Announcement) { a.Kind = "bogus" }),
		"lasts up to":      a(func(a *wire.Announcement) { a.End = a.Start.Add(8 * 24 * time.Hour) }),
		"has an owner":     a(func(a *wire.Announcement) { a.Owner = "" }),
		"at most 5 values": a(func(a *wire.Announcement) { a.Kind, a.Flow.Port = wire.FlowSpec, make([]wire.Range, 6) }),
		"appears twice":    wantedFor(func(w *wire.Wanted) { w.Announcements = append(w.Announcements, w.Announcements[0]) }),
		"a dry run":        wantedFor(func(w *wire.Wanted) { w.Upstream.Live = false }),
		"need sessions":    wantedFor(func(w *wire.Wanted) { w.Upstream = nil }),
		"its password":     wantedFor(func(w *wire.Wanted) { w.Upstream.Peers[0].Password = "/etc/key" }),
		"lacks something":  wantedFor(func(w *wire.Wanted) { w.Upstream.Peers[0].Max = 0 }),
		"1 to 64 routers":  wantedFor(func(w *wire.Wanted) { w.Upstream.Peers = nil }),
	} {
		if err := s.Put(w); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if st, err := s.Status(); err != nil || len(st.Announcements) != 0 || st.Refused != 14 {
		t.Errorf("%v: %+v", err, st)
	}
}

// TestPutWithoutDisk fills the disk. Announcements must be able to end, no announcement may start, and a restart must not announce a withdrawn one.
func TestPutWithoutDisk(t *testing.T) {
	testutil.RequireRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "nr_inodes=2"); err != nil { // there are inodes for the directory and one file, so the file cannot be replaced
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	s := newSpeaker(t, dir)
	if err := s.Put(wantedFor(nil)); err != nil || len(s.sessions.out) != 1 {
		t.Fatalf("%v: %v", err, s.sessions.out)
	}
	other := wantedFor(func(w *wire.Wanted) { w.Announcements[0].Flow.To = netip.MustParsePrefix("192.0.2.8/32") })
	if err := s.Put(other); err == nil || !strings.Contains(err.Error(), "none begins") {
		t.Errorf("a put without a disk: %v", err)
	}
	if len(s.sessions.out) != 0 {
		t.Errorf("announced without a disk: %v", s.sessions.out)
	}
	if again := newSpeaker(t, dir); len(again.wanted.Announcements) != 0 {
		t.Errorf("after a restart: %+v", again.wanted)
	}
	if err := os.WriteFile(filepath.Join(dir, stateFile), []byte(`{"upstream": {"as": 1}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if broken := newSpeaker(t, dir); broken.problem == "" || broken.sessions != nil {
		t.Errorf("a broken file is taken up: %+v", broken.wanted)
	}
}

// TestLimit has more announcements than the router accepts. The oldest ones must be announced.
func TestLimit(t *testing.T) {
	w := wantedFor(func(w *wire.Wanted) {
		for i := range 4 {
			a := w.Announcements[0]
			a.Flow.To = netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(20 + i)}), 32)
			a.Start = a.Start.Add(-time.Duration(i) * time.Minute)
			w.Announcements = append(w.Announcements, a)
		}
	})
	s := newSpeaker(t, t.TempDir())
	if err := s.Put(w); err != nil {
		t.Fatal(err)
	}
	if s.sessions.out["rtbh to 192.0.2.23/32"].path == nil || s.sessions.out["rtbh to 192.0.2.22/32"].path == nil || len(s.sessions.out) != 2 {
		t.Errorf("out: %v", s.sessions.out)
	}
}

// TestFlowPath encodes flows of announcements, and compares them with the result of the decoder for received routes.
func TestFlowPath(t *testing.T) {
	t.Parallel()
	to, six := netip.MustParsePrefix("192.0.2.7/32"), netip.MustParsePrefix("2001:db8::/33")
	one := func(n uint16) []wire.Range { return []wire.Range{{First: n, Last: n}} }
	for want, f := range map[string]wire.Flow{
		"destination 192.0.2.7/32": {To: to},
		"destination 192.0.2.7/32, source 198.51.100.0/22, protocol =17|=6":                      {To: to, From: netip.MustParsePrefix("198.51.100.0/22"), Proto: []uint8{17, 6}},
		"destination 192.0.2.7/32, destination port =53|>=1024&<=65535, source port =123":        {To: to, Port: append(one(53), wire.Range{First: 1024, Last: 65535}), SPort: one(123)},
		"destination 192.0.2.7/32, TCP flags all:0x02&!any:0x10":                                 {To: to, Set: 2, Unset: 16},
		"destination 192.0.2.7/32, TCP flags !any:0x3f":                                          {To: to, Unset: 63},
		"destination 2001:db8::/33, source 2001:db8:8000::/33, ICMP type =128, length >=0&<=100": {To: six, From: netip.MustParsePrefix("2001:db8:8000::/33"), ICMP: one(128), Length: []wire.Range{{Last: 100}}},
		"destination 192.0.2.7/32, fragment any:0x06":                                            {To: to, Fragment: true},
	} {
		p, err := flowPath(&wire.Announcement{Kind: wire.FlowSpec, Flow: f})
		if err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		nlri, err := p.Nlri.Serialize()
		if err != nil {
			t.Fatal(err)
		}
		got, rest, err := flowspec.Decode(nlri, f.To.Addr().Is6())
		if got.String() != want || len(rest) > 0 || err != nil {
			t.Errorf("%v: %s, %v, want %s", f, got, err, want)
		}
	}
}

// TestLargestFlow makes the longest route that wire.Flow.Check accepts.
func TestLargestFlow(t *testing.T) {
	ranges := func(first uint16) (l []wire.Range) {
		for i := range uint16(5) {
			l = append(l, wire.Range{First: first + 100*i, Last: first + 100*i + 50})
		}
		return l
	}
	f := wire.Flow{
		To: netip.MustParsePrefix("2001:db8::7/128"), From: netip.MustParsePrefix("2001:db8:ffff::1/128"), Proto: []uint8{6}, Port: ranges(1000), SPort: ranges(2000),
		Length: ranges(300), Set: 0x12, Unset: 0x21, Fragment: true,
	}
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
	p, err := flowPath(&wire.Announcement{Kind: wire.FlowSpec, Flow: f})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := p.Nlri.Serialize()
	if err != nil || len(raw) > mostNLRI {
		t.Errorf("%d bytes, want at most %d: %v", len(raw), mostNLRI, err)
	}
	t.Logf("%d bytes", len(raw))
}
