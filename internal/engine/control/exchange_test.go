// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/control"
	feedlists "github.com/floodwall/floodwall/internal/engine/lists"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/sources/feed"
	"github.com/floodwall/floodwall/test/testutil"
)

// lists has a web server that serves a list, and makes policies that use the list.
type lists struct {
	*ends
	url  string
	body atomic.Value // string
	from feed.Source

	beside bool // rules in netfilter also use the list
}

// onLists runs a test on each target, and also with rules that use the list in both XDP and netfilter.
func onLists(t *testing.T, test func(*lists, way)) {
	for _, w := range ways {
		onEnds(t, w.name, func(e *ends) {
			l := newLists(e)
			l.beside = w.beside
			test(l, w)
		})
	}
}

func newLists(e *ends) *lists {
	e.Helper()
	e.ip("link set lo up")
	l := &lists{ends: e}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, l.body.Load().(string)) }))
	e.Cleanup(server.Close)
	l.url = server.URL
	e.Feeds = feed.Store{Dir: filepath.Join(e.TempDir(), "feeds")}
	return l
}

// policy returns a policy with the list, bans, and a limit of three packets.
func (l *lists) policy(w way, url string) string {
	late := ""
	if w.beside {
		late = "  - {name: late, from: $drop, proto: udp, port: 1001, placement: filter, then: drop}\n"
	}
	return fmt.Sprintf(`sets:
  drop: {url: %q, shrink: 0%%}
  bans: {dynamic: true, max: 100}
rules:
  - {name: banned, from: $bans, then: drop}
  - {name: limited, proto: udp, port: 2001, over: {rate: 1/h, per: from, burst: 3}, then: drop}
%s  - {name: listed, from: $drop, then: drop}
`, url, late)
}

// serve changes the content of the list, and fetches the list.
func (l *lists) serve(body string) {
	l.Helper()
	l.body.Store(body)
	if l.from.URL == "" {
		l.from = feed.Source{Set: "drop", URL: l.url, Every: 12 * time.Hour, Grow: feed.DefaultGrow}
	}
	if _, err := l.Feeds.Refresh(l.Context(), &feed.Fetcher{}, l.from, true); err != nil {
		l.Fatal(err)
	}
}

func (l *lists) sync(want ...feedlists.Exchanged) {
	l.Helper()
	got, err := l.SyncLists(l.Context(), true)
	if err != nil {
		l.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		l.Errorf("exchanged (-want +got):\n%s", diff)
	}
}

// through reports whether a packet from an address reaches a port.
func (l *lists) through(from string, port int) bool {
	l.Helper()
	a, to := netip.MustParseAddr(from), "192.0.2.1"
	if a.Is6() {
		from, to = "["+from+"]", "[2001:db8::1]"
	}
	l.sendInOrder(fmt.Sprintf("udp %s:5555 > %s:%d", from, to, port), fmt.Sprintf("udp 192.0.2.9:5556 > 192.0.2.1:%d", markerPort))
	if !l.arrives(markerPort, time.Minute) {
		l.Fatalf("a packet to port %d, which nothing drops, does not arrive", markerPort)
	}
	return l.arrives(port, 20*time.Millisecond)
}

func (l *lists) want(when string, through map[string]bool) {
	l.Helper()
	for from, want := range through {
		if got := l.through(from, 1000); got != want {
			l.Errorf("%s: a packet from %s gets through: %t", when, from, got)
		}
		if !l.beside { // the list also decides about the other port only if beside is set
			continue
		}
		if got := l.through(from, 1001); got != want {
			l.Errorf("%s: a packet from %s to the other port gets through: %t", when, from, got)
		}
	}
}

// TestExchange exchanges a list and checks that only the list changes. The generation, the state of limits, the bans and the counters must stay.
func TestExchange(t *testing.T) {
	onLists(t, func(l *lists, w way) {
		l.body.Store("9.9.9.1\n9.9.10.0/24\n2a00:1::/32\n192.0.2.9\n")
		before := l.applyFetching(w)
		l.want("at first", map[string]bool{"9.9.9.1": false, "9.9.10.7": false, "9.9.9.2": true})
		l.block(ban.Ban{Prefix: netip.MustParsePrefix("9.9.9.77/32"), Until: ban.Never})
		for i, want := range []bool{true, true, true, false} {
			if got := l.through("9.9.9.5", 2001); got != want {
				l.Errorf("packet %d of a limit of three gets through: %t", i, got)
			}
		}
		counts := l.counts()
		const rounds = 1
		for round := range rounds {
			l.serve("9.9.9.2\n9.9.11.0/24\n2a00:2::/32\n")
			l.sync(feedlists.Exchanged{Set: "drop", Entries: 3, Before: 3})
			l.sync()
			l.want(fmt.Sprintf("exchanged, round %d", round), map[string]bool{"9.9.9.1": true, "9.9.10.7": true, "9.9.9.2": false, "9.9.11.3": false, "9.9.9.77": false})
			if l.through("9.9.9.5", 2001) {
				l.Error("the debt of a limit is forgotten")
			}
			l.serve("9.9.9.1\n9.9.10.0/24\n2a00:1::/32\n")
			l.sync(feedlists.Exchanged{Set: "drop", Entries: 3, Before: 3})
			l.want("exchanged back", map[string]bool{"9.9.9.1": false, "9.9.10.7": false, "9.9.9.2": true, "9.9.9.77": false})
		}
		after := l.counts()
		ports := uint64(1)
		if w.beside {
			ports = 2
		}
		dropped := func(c map[string]uint64) uint64 { return c["listed"] + c["late"] }
		if dropped(after)-dropped(counts) != rounds*4*ports || after["banned"] != counts["banned"]+rounds*2*ports || after["limited"] != counts["limited"]+rounds {
			l.Errorf("counters do not go on: %v after %v", after, counts)
		}
		s, err := l.Status(l.Context())
		if err != nil || s.Generation != before.Generation || s.Sets[0].Entries != 3 {
			l.Errorf("generation %d with %d entries, not %d with 3 (%v)", s.Generation, s.Sets[0].Entries, before.Generation, err)
		}
		// After an exchange, repair, apply and rollback work as before.
		if r, err := l.Repair(l.Context()); err != nil || r.Any() {
			l.Errorf("repaired %v, %v", r, err)
		}
		if _, err := l.try("rules: [{name: other, proto: udp, port: 2000, then: drop}]", control.ApplyOptions{Target: w.target}); err != nil {
			l.Fatal(err)
		}
		if now, err := l.Rollback(l.Context()); err != nil || now.Generation != before.Generation && w.target == plan.TargetXDP {
			l.Errorf("rollback: %+v, %v", now, err)
		}
		l.want("after the rollback", map[string]bool{"9.9.9.1": false, "9.9.9.2": true})
		l.serve("9.9.9.2\n")
		l.sync(feedlists.Exchanged{Set: "drop", Entries: 1, Before: 3})
		l.want("exchanged after the rollback", map[string]bool{"9.9.9.1": true, "9.9.9.2": false})
	})
}

func (l *lists) applyFetching(w way) *control.Applied {
	l.Helper()
	applied, err := l.try(l.policy(w, l.url), control.ApplyOptions{Target: w.target, Fetch: &feed.Fetcher{}})
	if err != nil {
		l.Fatal(err)
	}
	return applied
}

// rich is a policy with all features for which a program keeps state about packets: connections, cookies, clients, names, patterns, samples, limits.
const rich = `default: pass
checks: strict
sets:
  drop: {url: %q, shrink: 0%%}
  bans: {dynamic: true, max: 100}
  bad: {names: [evil.example]}
rules:
  - {name: banned, from: $bans, then: drop}
  - {name: names, dns: {name: $bad}, then: drop}
  - {name: pattern, proto: udp, payload: {contains: "evil"}, sample: 1/2, then: drop}
  - {name: pushy, proto: tcp, port: 443, over: {rate: 10/s, per: from, ban: {for: 10m, set: bans}}, then: drop}
  - {name: limited, proto: udp, port: 2001, over: {rate: 1/h, per: from, burst: 1}, then: drop}
  - {name: listed, from: $drop, then: drop}
services:
  - {name: web, port: tcp/80, syn: protect}
  - {name: dns, port: [udp/53, tcp/53], guard: dns, track: false}
`

// TestExchangeOfAll checks that an exchange keeps all state that the program has collected, on several devices, in native and in generic mode.
func TestExchangeOfAll(t *testing.T) {
	modes := []datapath.Mode{datapath.Generic} // generic mode, which also loads the program for native mode
	if testutil.Long() {
		modes = append(modes, datapath.Native)
	}
	for _, mode := range modes {
		onEnds(t, string(mode), func(e *ends) {
			l := newLists(e)
			e.ip("link add fw2 type veth peer name fw3", "link set fw2 up", "link set fw3 up")
			l.serve("9.9.9.1\n")
			o := control.ApplyOptions{Target: plan.TargetXDP, Mode: mode, Devices: []string{"fw0", "fw2"}, Fetch: &feed.Fetcher{}}
			before, err := l.try(fmt.Sprintf(rich, l.url), o)
			if err != nil {
				e.Fatal(err)
			}
			if !l.through("9.9.9.5", 2001) || l.through("9.9.9.5", 2001) {
				e.Fatal("the limit of one packet does not hold")
			}
			l.block(ban.Ban{Prefix: netip.MustParsePrefix("9.9.9.77/32"), Until: ban.Never})
			memory := map[string]ebpf.MapID{}
			for _, name := range []string{image.Flows, image.SynKeys, image.Counters, image.Limits, image.Dynamic, image.Verified, image.Offences, image.Samples} {
				memory[name] = mapID(e, before.Generation, name)
			}
			for round, list := range []string{"9.9.9.2\n9.9.12.0/24\n", "9.9.9.1\n"}[:testutil.Scaled(1, 2)] {
				l.serve(list)
				if done, err := l.SyncLists(l.Context(), true); err != nil || len(done) != 1 {
					e.Fatalf("%s: round %d: %v, %v", mode, round, done, err)
				}
				first := l.through("9.9.9.1", 1000)
				if first != (round == 0) || l.through("9.9.9.2", 1000) == first || l.through("9.9.9.77", 1000) || l.through("9.9.9.5", 2001) {
					e.Errorf("%s: round %d: the list, the ban or the limit does not hold", mode, round)
				}
				for name, id := range memory {
					if got := mapID(e, before.Generation, name); got != id {
						e.Errorf("%s: round %d: map %s is another", mode, round, name)
					}
				}
				s, err := l.Status(l.Context())
				if err != nil || s.Generation != before.Generation || len(s.Devices) != 2 || len(s.Open) > 0 {
					e.Errorf("%s: round %d: %+v, %v", mode, round, s, err)
				}
			}
			if _, err := l.Confirm(l.Context()); !errors.Is(err, datapath.ErrNoTrial) {
				e.Error(err)
			}
		})
	}
}

func mapID(e *ends, generation int, name string) ebpf.MapID {
	e.Helper()
	file := fmt.Sprintf("%s/generation-%d/%s", e.Dir, generation, strings.NewReplacer(".", "%2e").Replace(name))
	m, err := ebpf.LoadPinnedMap(file, nil)
	if err != nil {
		e.Fatal(err)
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		e.Fatal(err)
	}
	id, _ := info.ID()
	return id
}

// TestExchangeOnTrial checks that no list is exchanged while a policy is on trial. After the trial, the previous policy must get the newest list.
func TestExchangeOnTrial(t *testing.T) {
	for _, w := range []way{{"xdp", plan.TargetXDP, false}, {"nftables", plan.TargetNftables, false}} {
		onEnds(t, w.name, func(e *ends) {
			l := newLists(e)
			l.serve("9.9.9.1\n")
			l.applyFetching(w)
			_, err := l.try(l.policy(w, l.url), control.ApplyOptions{Target: w.target, Confirm: time.Minute})
			if err != nil {
				e.Fatal(err)
			}
			l.serve("9.9.9.2\n")
			l.sync()
			l.want("on trial", map[string]bool{"9.9.9.1": false, "9.9.9.2": true})
			if _, err := l.Rollback(e.Context()); err != nil {
				e.Fatal(err)
			}
			l.sync(feedlists.Exchanged{Set: "drop", Entries: 1, Before: 1})
			l.want("after the trial", map[string]bool{"9.9.9.1": true, "9.9.9.2": false})
		})
	}
}

// TestExchangeRefused makes XDP or netfilter refuse an exchange. The old list must stay in force, or at least in the part that was not exchanged yet.
// Nothing may remain of the failed exchange, and the next exchange must succeed.
func TestExchangeRefused(t *testing.T) {
	for _, w := range ways {
		onEnds(t, w.name, func(e *ends) {
			l := newLists(e)
			l.serve("9.9.9.1\n")
			l.applyFetching(w)
			l.serve("9.9.9.2\n")
			fail, calls := e.sabotage()
			fail(0)
			for n := 1; ; n += 2 {
				fail(n)
				_, err := l.SyncLists(e.Context(), true)
				done := calls() < n
				fail(0)
				if done {
					if err != nil {
						e.Fatal(err)
					}
					break
				}
				if err == nil {
					continue // the failed call was a query, which may fail without harm
				}
				if left, _ := filepath.Glob(e.Dir + "/renewal-*"); left != nil {
					e.Errorf("left behind: %v", left)
				}
			}
			l.sync()
			l.want("at last", map[string]bool{"9.9.9.1": true, "9.9.9.2": false})
		})
	}
}

// TestExchangeForAnotherVersion exchanges a list for a program of another version of Floodwall, whose maps cannot be taken over. The exchange must
// change nothing, in XDP or in netfilter.
func TestExchangeForAnotherVersion(t *testing.T) {
	onEnds(t, "xdp beside netfilter", func(e *ends) {
		l := newLists(e)
		l.beside = true
		l.serve("9.9.9.1\n")
		w := ways[slices.IndexFunc(ways, func(w way) bool { return w.beside })]
		generation := l.applyFetching(w).Generation
		state, err := datapath.OpenState(e.Dir, false)
		if err == nil {
			err = state.SetNote(generation, datapath.Note("formats"), []byte(`{"counters": 9}`))
		}
		if err != nil {
			e.Fatal(err)
		}
		l.serve("9.9.9.2\n")
		_, err = l.SyncLists(e.Context(), true)
		var another *datapath.FormatError
		if !errors.As(err, &another) {
			e.Errorf("the error is %v", err)
		}
		l.want("refused", map[string]bool{"9.9.9.1": false, "9.9.9.2": true})
	})
}

// TestSparedByLists has a list with addresses of this host, of hosts that it depends on, of the policy's key never, and of the operator. After an
// apply or an exchange the policy must not drop packets from these addresses, also if an address is new.
func TestSparedByLists(t *testing.T) {
	onEnds(t, "xdp", func(e *ends) {
		l := newLists(e)
		e.ip("addr add 9.9.9.50/32 dev fw0", "route add 9.9.20.0/24 via 192.0.2.7", "addr add 9.9.30.1/30 dev fw0", "route add 9.9.40.0/24 via 9.9.30.2")
		l.body.Store("9.9.9.0/24\n9.9.30.0/24\n9.9.60.0/24\n9.9.70.0/24\n9.9.80.0/24\n")
		session := facts.Session{Client: netip.MustParseAddrPort("9.9.70.7:50000"), Server: netip.MustParseAddrPort("192.0.2.1:22")}
		applied, err := l.try(fmt.Sprintf("never: [9.9.60.0/28]\nsets: {drop: {url: %q, shrink: 0%%}}\nrules: [{name: listed, from: $drop, then: drop}]\n", l.url),
			control.ApplyOptions{Target: plan.TargetXDP, Fetch: &feed.Fetcher{}, Sessions: []facts.Session{session}})
		if err != nil {
			e.Fatal(err)
		}
		notes := strings.Join(applied.Notes, "\n")
		for _, want := range []string{"9.9.9.50", "an address of this host", "a link, gateway, resolver or session of this host", "9.9.60.0/28 (never)",
			"9.9.70.7 (a session of an operator)"} {
			if !strings.Contains(notes, want) {
				e.Errorf("no %q in the notes:\n%s", want, notes)
			}
		}
		passes := map[string]bool{"9.9.9.50": true, "9.9.9.51": false, "9.9.30.2": true, "9.9.30.9": false, "9.9.60.3": true, "9.9.60.99": false,
			"9.9.70.7": true, "9.9.70.8": false, "9.9.80.1": false}
		asked := func(when string) {
			e.Helper()
			for from, pass := range passes {
				if got := e.ask("udp " + from + ":5 > 192.0.2.1:9"); strings.HasPrefix(got, "pass") != pass {
					e.Errorf("%s: a packet from %s: %s", when, from, got)
				}
			}
		}
		asked("applied")
		e.ip("addr add 9.9.80.1/32 dev fw0")
		passes["9.9.80.1"] = true
		if done, err := l.SyncLists(e.Context(), true); err != nil || len(done) != 1 {
			e.Fatal(done, err)
		}
		asked("with an address that is new")
	})
}

// TestExchangeHeld changes the set of a country so that it would drop an operator or a gateway. The set must keep its content, and the error must
// name the address. Other sets must be exchanged. When the set does no more harm, it must be exchanged, too.
func TestExchangeHeld(t *testing.T) {
	for _, w := range []way{{"xdp", plan.TargetXDP, false}, {"nftables", plan.TargetNftables, false}} {
		onEnds(t, w.name, func(e *ends) {
			l := newLists(e)
			e.ip("addr add 9.9.30.1/30 dev fw0", "route add 9.9.40.0/24 via 9.9.30.2")
			db := filepath.Join(e.TempDir(), "geo.mmdb")
			write := func(networks ...testutil.Network) {
				e.Helper()
				if err := testutil.Write(db, append(networks, testutil.Network{Prefix: "9.9.71.0/24", Country: "YY"})...); err != nil {
					e.Fatal(err)
				}
			}
			write(testutil.Network{Prefix: "9.9.20.0/24", Country: "XX"}, testutil.Network{Prefix: "9.9.70.0/24", Country: "YY"})
			session := facts.Session{Client: netip.MustParseAddrPort("9.9.70.7:50000"), Server: netip.MustParseAddrPort("192.0.2.1:22")}
			_, err := l.try(fmt.Sprintf("sets: {far: {country: XX, db: %q}, near: {country: YY, db: %[1]q}, drop: {url: %q, shrink: 0%%}}\n"+
				"rules: [{name: listed, from: $drop, then: drop}, {name: near, from: $near, port: tcp/22, then: pass}, {name: far, from: $far, then: drop}]\n",
				db, l.url), control.ApplyOptions{Target: w.target, Fetch: l.fetcher("9.9.50.0/24\n"), Sessions: []facts.Session{session}})
			if err != nil {
				e.Fatal(err)
			}
			far := func(prefixes ...string) (list []testutil.Network) {
				for _, p := range prefixes {
					list = append(list, testutil.Network{Prefix: p, Country: "XX"})
				}
				return list
			}
			near := testutil.Network{Prefix: "9.9.70.0/24", Country: "YY"}
			for _, c := range []struct {
				networks []testutil.Network
				held     string
			}{
				{far("9.9.21.0/24", "9.9.70.0/24"), `set "far" stays as it is: by the new database it would hold 9.9.70.7 (a session of an operator)`},
				{far("9.9.21.0/24"), `set "near" stays as it is: by the new database it would no longer hold 9.9.70.7`},
				{append(far("9.9.22.0/24", "9.9.30.0/24"), near), `set "far" stays as it is: by the new database it would hold 9.9.30.1 (an address of this host)`},
				{append(far("9.9.22.0/24", "9.9.30.2/32"), near), `set "far" stays as it is: by the new database it would hold 9.9.30.0/30 (a link, gateway`},
				{append(far("9.9.23.0/24"), near), ""},
			} {
				write(c.networks...)
				l.serve("9.9.51.0/24\n")
				_, err := l.SyncLists(e.Context(), true)
				var held *feedlists.HeldError
				if errors.As(err, &held) != (c.held != "") || err != nil && !strings.Contains(err.Error(), c.held) {
					e.Errorf("the error is %v, not %q", err, c.held)
				}
				l.want(c.held, map[string]bool{"9.9.50.1": true, "9.9.51.1": false, "9.9.70.7": true, "9.9.30.2": true})
			}
			l.want("at last", map[string]bool{"9.9.20.1": true, "9.9.21.1": true, "9.9.23.1": false})
		})
	}
}

// fetcher makes the server serve a body, and returns a Fetcher that can fetch it.
func (l *lists) fetcher(body string) *feed.Fetcher {
	l.body.Store(body)
	return &feed.Fetcher{}
}
