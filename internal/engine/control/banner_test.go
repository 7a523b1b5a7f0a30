// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/os/instance"
	"github.com/floodwall/floodwall/test/testutil"
)

// banning has limits on UDP ports. The limit of port 9 bans for 10 minutes, and the limit of port 10 for a second. Port 11 has two limits: the first
// bans, and the second does not. The limit of port 12 never bans, because its rule only observes.
const banning = `
checks: off
default: pass
sets:
  bans: {dynamic: true, max: 100}
  office: [203.0.113.0/24]
never: [$office]
rules:
  - {name: banned, from: $bans, then: drop}
  - {name: flood, proto: udp, port: 9, over: {rate: 5/s, per: from, burst: 5, ban: {for: 10m, trust: forgeable}}, then: drop}
  - {name: short, proto: udp, port: 10, over: {rate: 5/s, per: from, burst: 5, ban: {for: 1s, trust: forgeable}}, then: drop}
  - {name: layers, proto: udp, port: 11, then: drop,
     over: [{rate: 5/s, per: from, burst: 5, ban: {for: 10m, trust: forgeable}}, {rate: 1/min, per: from/24, burst: 5}]}
  - {name: look, proto: udp, port: 12, over: {rate: 5/s, per: from, burst: 5, ban: {for: 10m, trust: forgeable}}, then: drop, observe: true}
`

// watching is a host on which Watch runs.
type watching struct {
	*host
	stop func()

	lock   sync.Mutex
	events []daemon.Event
}

// watch starts Watch. It runs until stop is called or the test ends.
func (h *host) watch() *watching {
	ctx, cancel := context.WithCancel(h.Context())
	done := make(chan error, 1)
	w := &watching{host: h}
	go func() {
		done <- daemon.Watch(ctx, h.Instance, "", nil, func(e daemon.Event) {
			w.lock.Lock()
			defer w.lock.Unlock()
			w.events = append(w.events, e)
		})
	}()
	w.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				h.Error(err)
			}
		case <-time.After(slow):
			h.Error("Watch does not end")
		}
	})
	h.Cleanup(w.stop)
	return w
}

// has reports whether an event contains a text. Errors are events, too.
func (w *watching) has(text string) bool {
	w.lock.Lock()
	defer w.lock.Unlock()
	return slices.ContainsFunc(w.events, func(e daemon.Event) bool { return strings.Contains(fmt.Sprint(e), text) })
}

func (w *watching) wantEvent(text string) {
	w.Helper()
	if !testutil.Eventually(slow, func() bool { return w.has(text) }) { // the event follows the ban
		w.Errorf("no event is %q: %v", text, w.events)
	}
}

// wantNoError fails on events that are errors.
func (w *watching) wantNoError() {
	w.Helper()
	w.lock.Lock()
	defer w.lock.Unlock()
	for _, e := range w.events {
		if e.Err != nil {
			w.Errorf("event: %v", e.Err)
		}
	}
}

// flood sends some packets from each source to a port, one every few milliseconds.
func (h *host) flood(packets, port int, sources ...string) {
	h.Helper()
	if err := h.sendFor(port, sources, func(sent int) bool { return sent < packets }); err != nil {
		h.Error(err)
	}
}

// wantBan sends packets from sources to a port until a prefix is banned.
func (h *host) wantBan(prefix string, port int, sources ...string) {
	h.Helper()
	h.floodUntil(prefix+" is banned", func() bool { return h.isBlocked(prefix) }, port, sources...)
}

// floodUntil sends packets from sources to a port until is returns true.
func (h *host) floodUntil(what string, is func() bool, port int, sources ...string) {
	h.Helper()
	ctx, cancel := context.WithCancel(h.Context())
	done := make(chan error, 1)
	go func() { done <- h.sendFor(port, sources, func(int) bool { return ctx.Err() == nil }) }()
	if !testutil.Eventually(slow, is) {
		h.Errorf("not after %v: %s; banned are %v", slow, what, h.blocked())
	}
	cancel()
	if err := <-done; err != nil {
		h.Error(err)
	}
}

func (h *host) sendFor(port int, sources []string, more func(sent int) bool) error {
	var packets []string
	for _, s := range sources {
		packets = append(packets, h.from(s, port))
	}
	return testutil.SendFor("fw1", packets, func(sent int) bool {
		time.Sleep(2 * time.Millisecond)
		return more(sent)
	})
}

func (h *host) from(source string, port int) string {
	if strings.Contains(source, ":") {
		return fmt.Sprintf("udp [%s]:5 > [2001:db8::1]:%d", source, port)
	}
	return fmt.Sprintf("udp %s:5 > 192.0.2.1:%d", source, port)
}

func (h *host) isBlocked(prefix string) bool {
	return slices.ContainsFunc(h.blocked(), func(line string) bool { return strings.HasPrefix(line, prefix+" ") })
}

// slow is longer than a ban takes, also on a busy machine.
const slow = time.Minute

func TestBanner(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	w := h.watch() // before any policy is applied
	h.apply(banning)
	const spared = "rule flood: not banned: 203.0.113.5 exceeds its limit, but is never banned"
	h.floodUntil(spared, func() bool { return w.has(spared) }, 9, "203.0.113.5") // an address of the office
	h.send(5, h.from("198.51.100.1", 9))                                         // within the burst
	h.wantBan("198.51.100.7/32", 9, "198.51.100.7")
	h.wantBan("2001:db8:5::/64", 9, "2001:db8:5::7", "2001:db8:5::8")
	w.wantBlocked("after floods", []string{
		"198.51.100.7/32 bans 0h above the limit of rule flood", "2001:db8:5::/64 bans 0h above the limit of rule flood",
	})
	for _, test := range []struct{ source, want string }{
		{"198.51.100.7", "drop banned"}, {"2001:db8:5::99", "drop banned"},
		{"198.51.100.1", "pass default"}, {"203.0.113.5", "pass default"}, {"2001:db8:6::1", "pass default"},
	} {
		if got := h.ask(h.from(test.source, 80)); got != test.want {
			t.Errorf("%s: %s, want %s", test.source, got, test.want)
		}
	}
	w.wantEvent("rule flood: banned 198.51.100.7 for 10m0s")

	h.wantBan("198.51.100.8/32", 10, "198.51.100.8")
	if !testutil.Eventually(slow, func() bool { return !h.isBlocked("198.51.100.8/32") }) {
		t.Fatal("the ban for a second does not end")
	}
	w.wantNoError()
}

// TestBannedNeighbours floods from 20 addresses of one network.
func TestBannedNeighbours(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	h.apply(banning)
	w := h.watch()
	var sources []string
	for i := range 20 {
		sources = append(sources, fmt.Sprintf("100.64.7.%d", i))
	}
	h.wantBan("100.64.7.0/24", 9, sources...)
	if got := h.ask(h.from("100.64.7.200", 80)); got != "drop banned" {
		t.Errorf("a neighbour that has sent nothing: %s", got)
	}
	if n := len(h.blocked()); n > 17 {
		t.Errorf("%d entries: those after the 16th are in the wider one", n)
	}
	w.wantEvent("banned 100.64.7.0/24 for 10m0s, with 16 offenders in it")
	w.wantNoError()
}

// TestBannerSpares floods from sources that must not be banned.
func TestBannerSpares(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	h.apply(banning)
	const warning = "nobody is banned for rule \"flood\" while `floodwall daemon` does not run"
	h.wantWarning(warning, true)
	h.flood(100, 9, "198.51.100.7") // Watch does not run yet, so these packets must not lead to a ban later
	w := h.watch()
	time.Sleep(time.Second)
	testutil.Eventually(slow, func() bool { return !h.warns(warning) })
	h.wantWarning(warning, false)
	h.flood(100, 9, "203.0.113.5")   // never banned
	h.flood(100, 12, "198.51.100.7") // only observed
	var many []string
	for i := range 30 {
		many = append(many, fmt.Sprintf("100.64.7.%d", i))
	}
	h.flood(3, 11, many...) // exceeds only the limit that does not ban
	time.Sleep(500 * time.Millisecond)
	h.wantBlocked("where nobody is to be banned", nil)
	counts, floods := h.counts(), []string{"flood", "layers", "look"}
	testutil.Eventually(slow, func() bool { // packets may wait for a CPU
		counts = h.counts()
		return !slices.ContainsFunc(floods, func(rule string) bool { return counts[rule] == 0 })
	})
	for _, rule := range floods {
		if counts[rule] == 0 {
			t.Errorf("rule %s has seen no flood: %v", rule, counts)
		}
	}
	h.wantBan("198.51.100.11/32", 11, "198.51.100.11")

	err := daemon.Watch(t.Context(), h.Instance, "", nil, func(daemon.Event) {})
	var watched *instance.HeldError
	if !errors.As(err, &watched) || watched.Process != os.Getpid() {
		t.Errorf("a second one: %v, want that process %d watches", err, os.Getpid())
	}
	w.stop()
	h.wantWarning(warning, true)
	w.wantNoError()

	// A rule that only observes needs no daemon.
	h.apply(strings.ReplaceAll(banning, "then: drop}", "then: drop, observe: true}"))
	h.wantWarning(`rule "layers"`, true)
	h.apply(banning[:strings.Index(banning, "  - {name: flood")] + banning[strings.Index(banning, "  - {name: look"):])
	h.wantWarning("`floodwall daemon`", false)
}

func (h *host) wantWarning(text string, want bool) {
	h.Helper()
	if h.warns(text) != want {
		h.Errorf("want a warning %q: %t", text, want)
	}
}

// warns reports whether status has a warning that contains a text.
func (h *host) warns(text string) bool {
	h.Helper()
	s, err := h.Status(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	return strings.Contains(strings.Join(s.Warnings, "\n"), text)
}

// TestBannerFollows changes the policy in force while Watch runs.
func TestBannerFollows(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	w := h.watch()
	h.apply(banning)
	h.wantBan("198.51.100.1/32", 9, "198.51.100.1")
	h.apply(strings.ReplaceAll(banning, "port: 9", "port: 19"))
	h.wantBan("198.51.100.2/32", 19, "198.51.100.2")

	// An own address that the host gets now must not be banned.
	h.ip("addr add 198.51.100.99/32 dev fw0")
	const spared = "not banned: 198.51.100.99 exceeds its limit"
	time.Sleep(2500 * time.Millisecond) // Watch reads the addresses every second
	h.floodUntil(spared, func() bool { return w.has(spared) }, 19, "198.51.100.99")
	if h.isBlocked("198.51.100.99/32") {
		t.Error("the host's new address is banned")
	}

	// A trial, and then the policy to which it returns.
	if _, err := h.try(strings.ReplaceAll(banning, "port: 9", "port: 29"), control.ApplyOptions{Confirm: time.Minute}); err != nil {
		t.Fatal(err)
	}
	h.wantBan("198.51.100.3/32", 29, "198.51.100.3")
	if _, err := h.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.wantBan("198.51.100.4/32", 19, "198.51.100.4")

	// Another policy with the same generation number.
	if err := h.Unload(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.apply(banning)
	h.wantBan("198.51.100.5/32", 9, "198.51.100.5")
	w.wantNoError()

	// A set full of automatic bans must accept a ban by hand. A set full of bans by hand must accept no other ban until it has space.
	h.apply(strings.ReplaceAll(banning, "max: 100", "max: 2"))
	h.wantBan("198.51.100.6/32", 9, "198.51.100.6", "198.51.100.7", "198.51.100.8")
	for _, p := range []string{"192.0.2.101/32", "192.0.2.102/32"} {
		h.block(ban.Ban{Prefix: netip.MustParsePrefix(p)})
	}
	h.wantBlocked("by hand", []string{"192.0.2.101/32 bans forever", "192.0.2.102/32 bans forever"})
	const full = `bans: rule flood: set "bans" is full: 2 entries`
	h.floodUntil(full, func() bool { return w.has(full) }, 9, "198.51.100.6", "198.51.100.7", "198.51.100.8")
	h.wantBlocked("by hand, beside a flood", []string{"192.0.2.101/32 bans forever", "192.0.2.102/32 bans forever"})
	if _, err := h.Unblock(t.Context(), "", []netip.Prefix{netip.MustParsePrefix("192.0.2.101/32")}); err != nil {
		t.Fatal(err)
	}
	h.floodUntil("one of the refused is banned", func() bool { return len(h.blocked()) == 2 },
		9, "198.51.100.6", "198.51.100.7", "198.51.100.8")
}
