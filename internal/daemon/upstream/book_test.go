// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/policy"
)

func routers() *policy.Upstream {
	return &policy.Upstream{
		AS: 64500, RouterID: netip.MustParseAddr("192.0.2.1"), Announce: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Live: true,
		Hold: time.Minute, For: 10 * time.Minute,
		Peers: []policy.Peer{{Address: netip.MustParseAddr("192.0.2.254"), AS: 64501, HoldTime: 90 * time.Second, Max: 2,
			Families: []policy.Family{policy.IPv4FlowSpec, policy.IPv4Unicast}}},
	}
}

func request(to string, length time.Duration) Request {
	return Request{Kind: wire.FlowSpec, Flow: wire.Flow{To: netip.MustParsePrefix(to), Proto: []uint8{17}}, Owner: "alice", For: length}
}

// TestBook follows an announcement through its life, with a clock of the test.
func TestBook(t *testing.T) {
	ctx, u, b := context.Background(), routers(), Book{filepath.Join(t.TempDir(), "book")}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	must := func(r Request) wire.Announcement {
		t.Helper()
		a, err := b.Announce(ctx, u, r, at)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := must(request("192.0.2.7/32", time.Second))
	if a.End != at.Add(time.Minute) || a.Hold != a.End || a.Start != at {
		t.Errorf("an announcement shorter than its minimum hold: %+v", a)
	}
	if a = must(request("192.0.2.7/32", time.Hour)); a.End != at.Add(time.Hour) {
		t.Errorf("prolonged: %+v", a)
	}
	must(request("192.0.2.8/32", time.Hour))
	var full *FullError
	if _, err := b.Announce(ctx, u, request("192.0.2.9/32", time.Hour), at); !errors.As(err, &full) {
		t.Errorf("a third announcement for a router that takes 2: %v", err)
	}
	var foreign *wire.NotOwnError
	if _, err := b.Announce(ctx, u, request("192.0.3.9/32", time.Hour), at); !errors.As(err, &foreign) {
		t.Errorf("a destination of others: %v", err)
	}
	all := func(*wire.Announcement) bool { return true }
	if gone, held, err := b.Withdraw(ctx, all, false, at.Add(time.Second)); err != nil || len(gone) != 0 || len(held) != 2 || held[0].End != at.Add(time.Minute) {
		t.Errorf("withdrawn before the minimum hold: %v %v %v", gone, held, err)
	}
	// After its end, the announcement must wait for hold, and after the next end twice as long.
	at = at.Add(61 * time.Second)
	ended := at.Add(-time.Second)
	for _, wait := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute} {
		a = must(request("192.0.2.7/32", time.Minute))
		if a.Start.Sub(ended) != wait || a.Out(at) {
			t.Errorf("announced again %v after its end, want %v", a.Start.Sub(ended), wait)
		}
		ended = a.End
		at = a.End.Add(time.Second)
	}
	if a = must(request("192.0.2.7/32", time.Minute)); a.Out(at) {
		t.Fatalf("it does not wait: %+v", a)
	}
	if gone, held, err := b.Withdraw(ctx, all, false, at.Add(time.Second)); err != nil || len(gone) != 1 || len(held) != 0 {
		t.Errorf("one that waits is withdrawn: %v %v %v", gone, held, err)
	}
	if list, err := b.List(ctx, a.Start); err != nil || len(list) != 0 {
		t.Errorf("one that was withdrawn while it waited goes out: %v %v", list, err)
	}
	if again := must(request("192.0.2.7/32", time.Minute)); again.Start != a.Start {
		t.Errorf("one that never went out counts as one that came and went: it waits until %v, and not until %v", again.Start, a.Start)
	}
	insists := request("192.0.2.7/32", time.Minute)
	insists.Now = true
	if a = must(insists); a.Start != at || a.End != at.Add(time.Minute) {
		t.Errorf("a person who insists waits until %v, and it lasts until %v", a.Start, a.End)
	}
	at = a.End.Add(61 * time.Minute)
	if a = must(request("192.0.2.7/32", time.Minute)); a.Start != at {
		t.Errorf("an hour later it waits until %v", a.Start)
	}
	if err := os.WriteFile(filepath.Join(b.dir, bookFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	var broken *BrokenError
	if _, err := b.List(ctx, at); !errors.As(err, &broken) || !strings.Contains(err.Error(), bookFile) {
		t.Errorf("a broken book: %v", err)
	}
}

// TestFlowOf checks which announcement FlowOf returns for samples of attacks.
func TestFlowOf(t *testing.T) {
	u := routers()
	talkers := func(rows ...any) (list []operate.Talker) {
		for i := 0; i < len(rows); i += 2 {
			list = append(list, operate.Talker{Key: rows[i].(string), Share: rows[i+1].(float64)})
		}
		return list
	}
	target := talkers("192.0.2.0/24", 1.0, "192.0.2.7/32", 0.9)
	for _, row := range []struct {
		name    string
		samples *operate.Samples
		want    string // the flow, or the reason why there is none
	}{
		{"reflection", &operate.Samples{Destinations: target, Fields: map[string][]operate.Talker{
			"proto": talkers("udp", 0.95), "sport": talkers("udp/123", 0.9), "length": talkers("468", 0.85), "port": talkers("udp/80", 0.5)}},
			"to 192.0.2.7/32 proto udp sport 123 length 468"},
		{"one network", &operate.Samples{Destinations: target, Sources: talkers("198.51.0.0/16", 0.95, "198.51.100.0/24", 0.9, "198.51.100.1/32", 0.1),
			Fields: map[string][]operate.Talker{"proto": talkers("tcp", 0.95)}}, "to 192.0.2.7/32 from 198.51.100.0/24 proto tcp"},
		{"what clients send", &operate.Samples{Destinations: target, Fields: map[string][]operate.Talker{
			"proto": talkers("tcp", 1.0), "port": talkers("tcp/443", 1.0), "flags": talkers("syn", 1.0)}}, "nothing in common"},
		{"the address of others", &operate.Samples{Destinations: talkers("203.0.113.7/32", 1.0)}, "no own address"},
		{"no target", &operate.Samples{Destinations: talkers("192.0.2.7/32", 0.3, "192.0.2.8/32", 0.3)}, "no own address"},
		{"no samples", nil, "no samples"},
	} {
		f, _, why := FlowOf(u, row.samples)
		if why == "" {
			why = f.String()
		}
		if !strings.Contains(why, row.want) {
			t.Errorf("%s: %s, want %s", row.name, why, row.want)
		}
	}
}
