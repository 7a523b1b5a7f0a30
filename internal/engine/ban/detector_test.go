// SPDX-License-Identifier: Apache-2.0

package ban

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/model/addrs"
)

var start = time.Unix(1000, 0)

// offend makes a prefix offend n times, with the given time between offences. It returns the resulting bans as text.
func offend(d *Detector, prefix string, n int, from time.Time, apart time.Duration) (bans []string) {
	for i := range n {
		if ban, ok := d.Offence(netip.MustParsePrefix(prefix), from.Add(time.Duration(i)*apart), time.Minute); ok {
			text := fmt.Sprintf("%s for %d", ban.Prefix, ban.Offends)
			if ban.Again {
				text += " again"
			}
			bans = append(bans, text)
		}
	}
	return bans
}

func wantBans(t *testing.T, got []string, want ...string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("bans %v, want %v", got, want)
	}
}

func TestOffences(t *testing.T) {
	d := NewDetector(&addrs.Set{})
	wantBans(t, offend(d, "192.0.2.1/32", enough-1, start, time.Millisecond))
	wantBans(t, offend(d, "192.0.2.1/32", 1, start.Add(time.Second), 0), "192.0.2.1/32 for 1")
	wantBans(t, offend(d, "192.0.2.1/32", 100, start.Add(2*time.Second), time.Millisecond)) // the prefix is already banned
	wantBans(t, offend(d, "192.0.2.1/32", enough, start.Add(2*time.Minute), 0), "192.0.2.1/32 for 1")
	wantBans(t, offend(d, "2001:db8::/64", 3*enough, start, within)) // the offences are too far apart for a ban
}

func TestWidening(t *testing.T) {
	for _, test := range []struct{ format, wide string }{
		{"192.0.2.%d/32", "192.0.2.0/24"},
		{"2001:db8:0:%x::/64", "2001:db8::/56"},
	} {
		d := NewDetector(&addrs.Set{})
		for i := range neighbours - 1 {
			p := fmt.Sprintf(test.format, i)
			wantBans(t, offend(d, p, enough, start, 0), netip.MustParsePrefix(p).String()+" for 1")
		}
		last := fmt.Sprintf(test.format, neighbours)
		wantBans(t, offend(d, last, enough, start, 0), fmt.Sprintf("%s for %d", test.wide, neighbours))
		wantBans(t, offend(d, fmt.Sprintf(test.format, 99), 100, start, 0)) // a banned prefix already contains this one
	}
}

// TestSites makes customers of one site offend. The site must be banned when many customers offend, but not when only one does.
func TestSites(t *testing.T) {
	d := NewDetector(&addrs.Set{})
	for i := range neighbours { // offenders of one customer
		offend(d, fmt.Sprintf("2001:db8:0:%x::/64", i), enough, start, 0)
	}
	for i := 1; i < neighbours-1; i++ {
		p := fmt.Sprintf("2001:db8:0:%x00::/64", i)
		wantBans(t, offend(d, p, enough, start, 0), p+" for 1")
	}
	wantBans(t, offend(d, "2001:db8:0:ff00::/64", enough, start, 0), fmt.Sprintf("2001:db8::/48 for %d", neighbours))
}

// TestRefused reports the bans of a prefix and of a wider prefix as refused. If the prefix offends again, it must be banned again.
func TestRefused(t *testing.T) {
	d := NewDetector(&addrs.Set{})
	wantBans(t, offend(d, "192.0.2.1/32", enough, start, 0), "192.0.2.1/32 for 1")
	d.Refused(netip.MustParsePrefix("192.0.2.1/32"))
	for i := 1; i < neighbours; i++ {
		p := fmt.Sprintf("192.0.2.%d/32", i)
		wantBans(t, offend(d, p, enough, start, 0), p+" for 1")
	}
	wantBans(t, offend(d, "192.0.2.100/32", enough, start, 0), fmt.Sprintf("192.0.2.0/24 for %d", neighbours))
	d.Refused(netip.MustParsePrefix("192.0.2.0/24"))
	wantBans(t, offend(d, "192.0.2.100/32", enough, start, 0), fmt.Sprintf("192.0.2.0/24 for %d", neighbours))
}

// TestWideningEnds makes the bans of some neighbours end before other neighbours offend. The wider prefix must not be banned.
func TestWideningEnds(t *testing.T) {
	d := NewDetector(&addrs.Set{})
	for i := range neighbours {
		at := start.Add(time.Duration(i) * 30 * time.Second) // a ban holds for a minute
		p := fmt.Sprintf("192.0.2.%d/32", i)
		wantBans(t, offend(d, p, enough, at, 0), p+" for 1")
	}
}

func TestNever(t *testing.T) {
	var b addrs.Builder
	for _, text := range []string{"192.0.2.200", "2001:db8::/32"} {
		if err := b.AddText(text); err != nil {
			t.Fatal(err)
		}
	}
	d := NewDetector(b.Set())
	wantBans(t, offend(d, "192.0.2.200/32", 100, start, 0))
	wantBans(t, offend(d, "192.0.2.0/24", 100, start, 0))
	wantBans(t, offend(d, "2001:db8:1:2::/64", 100, start, 0))
	for i := range 2 * neighbours { // no wider prefix is banned, because it contains a spared address
		p := fmt.Sprintf("192.0.2.%d/32", i)
		wantBans(t, offend(d, p, enough, start, 0), p+" for 1")
	}
}

// TestLifted makes a prefix offend after its ban, like a source whose ban was lifted, or whose packets a rule decides before the set is looked up.
func TestLifted(t *testing.T) {
	d := NewDetector(&addrs.Set{})
	const p = "192.0.2.1/32"
	wantBans(t, offend(d, p, enough, start, 0), p+" for 1")
	wantBans(t, offend(d, p, 100, start.Add(inFlight-time.Second), 0))
	wantBans(t, offend(d, p, enough-1, start.Add(inFlight), 0))
	wantBans(t, offend(d, p, 1, start.Add(inFlight), 0), p+" for 1 again")
	wantBans(t, offend(d, p, enough, start.Add(3*inFlight), 0), p+" for 1 again")
	wantBans(t, offend(d, p, enough, start.Add(sayAgain), 0), p+" for 1")
}

// TestSpared checks the reports on offenders that are not banned: one report for each offender, up to a maximum. It also changes the allowlist.
func TestSpared(t *testing.T) {
	var b addrs.Builder
	for _, text := range []string{"192.0.2.200", "10.0.0.0/8", "2001:db8::/32"} {
		if err := b.AddText(text); err != nil {
			t.Fatal(err)
		}
	}
	d := NewDetector(&addrs.Set{})
	var told []string
	d.Allowed = func(p, never netip.Prefix) { told = append(told, fmt.Sprint(p, " ", never)) }
	wantBans(t, offend(d, "192.0.2.0/24", enough, start, 0), "192.0.2.0/24 for 1")
	d.SetAllowlist(b.Set())
	later := start.Add(time.Minute)
	for _, p := range []string{"192.0.2.0/24", "10.1.2.3/32", "2001:db8:1::/64", "192.0.2.0/24"} {
		wantBans(t, offend(d, p, 3*enough, later, 0))
	}
	if want := "[192.0.2.0/24 192.0.2.200/32 10.1.2.3/32 10.0.0.0/8 2001:db8:1::/64 2001:db8::/32]"; fmt.Sprint(told) != want {
		t.Errorf("told of %v, want %v", told, want)
	}
	for i := range 2 * maxAllowed {
		offend(d, fmt.Sprintf("10.0.%d.0/24", i), enough, later, 0)
	}
	if len(told) != maxAllowed {
		t.Errorf("told of %d that are spared, want %d", len(told), maxAllowed)
	}
}

// TestSparedAround makes neighbours of a spared address offend. They must be banned, but must not lead to the ban of a wider prefix.
func TestSparedAround(t *testing.T) {
	var b addrs.Builder
	b.AddText("192.0.2.200")
	d := NewDetector(b.Set())
	for i := range 100 {
		offend(d, fmt.Sprintf("192.0.2.%d/32", i), enough, start, 0)
	}
	if len(d.inside) != 0 {
		t.Errorf("neighbours are remembered: %v", d.inside)
	}
}

// TestMemory makes more prefixes offend than the detector remembers. After that the detector must still find an offender.
func TestMemory(t *testing.T) {
	d := NewDetector(&addrs.Set{})
	for i := range 3 * mostKnown {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
		if ban, ok := d.Offence(p, start, time.Minute); ok {
			t.Fatal(ban)
		}
		if len(d.offenders) > mostKnown {
			t.Fatalf("%d offenders are remembered", len(d.offenders))
		}
	}
	wantBans(t, offend(d, "192.0.2.1/32", enough, start, 0), "192.0.2.1/32 for 1")
}

// TestMemoryOfBans makes sources in the whole Internet offend, like forged ones, with bans that last a day. The memory for these bans must be
// bounded, and every offender must still be banned.
func TestMemoryOfBans(t *testing.T) {
	const most = 64 << 20 // bytes
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	d, before, now := NewDetector(&addrs.Set{}), heap(), start
	for i := range 300_000 {
		now = now.Add(time.Millisecond)
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(1 + i>>16), byte(i >> 8), byte(i), 7}), 32)
		banned := 0
		for range enough {
			if ban, ok := d.Offence(p, now, 24*time.Hour); ok && ban.Prefix == p {
				banned++
			}
		}
		if banned != 1 {
			t.Fatalf("%s is banned %d times, want once", p, banned)
		}
	}
	if grown := heap() - before; grown > most {
		t.Errorf("the detector takes %d MB, want at most %d", grown>>20, most>>20)
	}
	runtime.KeepAlive(d)
}

// TestEnded makes many bans of a minute, one after the other. The detector may remember only bans that have not ended.
func TestEnded(t *testing.T) {
	d := NewDetector(&addrs.Set{})
	for i := range 10_000 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)
		offend(d, p.String(), enough, start.Add(time.Duration(i)*time.Second), 0)
		if len(d.banned) > 120 || len(d.inside) > 120 {
			t.Fatalf("%d bans and %d wider prefixes are remembered", len(d.banned), len(d.inside))
		}
	}
}
