// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/sources/feed"
	"github.com/floodwall/floodwall/test/testutil"
)

// probes is the number of the last packet that gets has sent.
var probes = 10_000

// gets reports whether a packet from an address reaches a port. If `should` is true, it waits longer for the packet, which may be late on a busy
// machine.
func (e *ends) gets(from string, port int, should bool) bool {
	e.Helper()
	probes++
	e.sendInOrder(fmt.Sprintf("udp %s:%d > 192.0.2.1:%d", from, probes, port), fmt.Sprintf("udp 192.0.2.9:5556 > 192.0.2.1:%d", markerPort))
	if !e.arrives(markerPort, time.Minute) {
		e.Fatalf("a packet to port %d, which nothing drops, does not arrive", markerPort)
	}
	wait := 20 * time.Millisecond
	if should {
		wait = time.Minute
	}
	for end := time.Now().Add(wait); ; {
		_, sender, ok := testutil.Receive(e, e.sockets[port], time.Until(end))
		if !ok || int(sender.Port()) == probes {
			return ok
		}
	}
}

// TestTemporary adds and removes temporary rules beside a policy, on each target, and sends packets to sockets. The policy, its limits, bans and
// counters must not be affected. An apply, a trial, a rollback and a repair must keep the temporary rules. The kernel must end them by itself.
func TestTemporary(t *testing.T) {
	onLists(t, func(l *lists, w way) {
		if w.beside {
			return
		}
		l.body.Store("9.9.9.77\n")
		text := l.policy(w, l.url) + "never: [9.9.9.200]\n"
		apply := func(service string, confirm time.Duration) int {
			l.Helper()
			_, err := l.try(text+"services: [{name: "+service+", port: udp/4999}]\n",
				control.ApplyOptions{Target: w.target, Fetch: &feed.Fetcher{}, Confirm: confirm})
			if err != nil {
				l.Fatal(err)
			}
			s, err := l.Status(l.Context())
			if err != nil {
				l.Fatal(err)
			}
			return s.Generation
		}
		apply("first", 0)
		h := operate.Host{Instance: l.Instance, Warn: func(err error) { l.Errorf("warned: %v", err) }}
		second := apply("second", 0)
		for range 3 {
			l.gets("9.9.9.5", 2001, true)
		}
		l.block(ban.Ban{Prefix: netip.MustParsePrefix("9.9.9.50/32"), Until: ban.Never})
		same := func(when string, port1000 bool) {
			l.Helper()
			for _, c := range []struct {
				from string
				port int
				want bool
			}{{"9.9.9.1", 1000, port1000}, {"9.9.9.200", 1000, true}, {"9.9.9.50", 2000, false}} {
				if l.gets(c.from, c.port, c.want) != c.want {
					l.Errorf("%s: a packet from %s to port %d gets through: %t", when, c.from, c.port, !c.want)
				}
			}
		}
		add := func(text, duration string) *manifest.Temporary {
			l.Helper()
			added, err := h.AddTemporary(l.Context(), operate.TemporaryOrder{Rule: text, For: duration})
			if err != nil {
				l.Fatal(err)
			}
			return added
		}
		packets := func(name string) (n uint64) {
			l.Helper()
			list, err := h.Temporary(l.Context())
			if err != nil {
				l.Fatal(err)
			}
			for _, r := range list {
				if r.Name == name {
					n += r.Packets
				}
			}
			return n
		}
		add("{name: looks, proto: udp, port: 1000, observe: true, then: drop}", "1h")
		same("it observes", true)
		if n := packets("looks"); n != 1 { // the source of the other packet is never banned
			l.Errorf("an observing rule has counted %d packets, not 1", n)
		}
		add("{name: drops, proto: udp, port: 1000, then: drop}", "1h")
		same("it drops", false)
		if n, m := packets("looks"), packets("drops"); n != 2 || m != 1 {
			l.Errorf("rules have counted %d and %d packets, not 2 and 1", n, m)
		}
		if s, err := l.Status(l.Context()); err != nil || s.Generation != second {
			l.Errorf("the generation is another than %d: %v", second, err)
		}
		if l.gets("9.9.9.5", 2001, false) {
			l.Error("the debt of a limit is forgotten")
		}
		spec, _ := packet.Parse("udp 9.9.9.1:5555 > 192.0.2.1:1000")
		if e, err := l.Explain(l.Context(), spec); err != nil || e.Reason != "drops" || e.Verdict != "drop" {
			l.Errorf("explain: %+v, %v", e, err)
		}
		if _, err := h.AddTemporary(l.Context(), operate.TemporaryOrder{Rule: "{name: limited, proto: udp, then: drop}", For: "1h"}); err == nil {
			l.Error("a rule has the name of one of the policy")
		}
		// An apply, a trial, and a repair.
		apply("third", 0)
		if r, err := l.Repair(l.Context()); err != nil || r.Any() {
			l.Errorf("there was nothing to repair: %+v, %v", r, err)
		}
		apply("trial", time.Minute)
		if n := packets("drops"); n != 1 {
			l.Errorf("on trial the rule has counted %d packets, not 1 as before", n)
		}
		if err := h.RemoveTemporary(l.Context(), "drops"); !errors.Is(err, control.ErrOnTrial) {
			l.Errorf("a temporary rule is removed during a trial: %v", err)
		}
		if _, err := h.Rollback(l.Context()); err != nil {
			l.Fatal(err)
		}
		same("the trial is given up", false)
		// A rollback returns to the previous policy and keeps the rules. A rule that was removed must not come back.
		if err := h.RemoveTemporary(l.Context(), "looks"); err != nil {
			l.Fatal(err)
		}
		if _, err := h.Rollback(l.Context()); err != nil {
			l.Fatal(err)
		}
		same("rolled back", false)
		if err := h.RemoveTemporary(l.Context(), "drops"); err != nil {
			l.Fatal(err)
		}
		same("removed", true)
		if _, err := h.Rollback(l.Context()); err != nil {
			l.Fatal(err)
		}
		same("rolled back to where they were in force", true)
		if list, err := h.Temporary(l.Context()); err != nil || len(list) != 0 {
			l.Errorf("left: %+v, %v", list, err)
		}
		for _, o := range []operate.TemporaryOrder{
			{Rule: "{name: x, proto: udp, then: pass}", For: "1h"}, {Rule: "{name: x, proto: udp, over: {rate: 1/s}, then: drop}", For: "1h"},
			{Rule: "{name: x, proto: udp, then: drop}\n  - {name: y, then: drop}", For: "1h"}, {Rule: "{name: x, proto: udp, then: drop}", For: "1h", Name: "a \"b\" { drop }"},
			{Rule: "{name: x, from: $drop, then: drop}", For: "1h"}, {Rule: "{name: x, to: local, then: drop}", For: "1h"}, {Rule: "{proto: udp, then: drop}", For: "1h"},
			{Rule: "{name: x, proto: udp, then: drop}", For: "0s"}, {Rule: "{name: x, proto: udp, then: drop}", For: "25h"}, {Rule: "", For: "1h"},
		} {
			var hint interface{ Hint() string }
			if _, err := h.AddTemporary(l.Context(), o); err == nil || !errors.As(err, &hint) || hint.Hint() == "" {
				l.Errorf("%+v: error %v", o, err)
			}
		}
		// The kernel ends the rule, because no process of Floodwall runs meanwhile.
		short := add("{name: short, proto: udp, port: 1000, then: drop}", "3s")
		if got := l.gets("9.9.9.1", 1000, false); got && time.Now().Before(short.Until) {
			l.Error("a short rule drops nothing")
		}
		time.Sleep(time.Until(short.Until.Add(1100 * time.Millisecond)))
		same("it has ended", true)
		if _, err := l.FinishTrial(l.Context()); err != nil { // as the daemon does every second
			l.Error(err)
		}
		if s, err := l.Status(l.Context()); err != nil || slices.ContainsFunc(s.Rules, func(r control.RuleStatus) bool { return r.Temporary != nil }) {
			l.Errorf("a rule that has ended is left: %v", err)
		}
		add("{name: left, proto: udp, port: 1000, then: drop}", "1h")
		if err := l.Unload(l.Context()); err != nil {
			l.Fatal(err)
		}
		if !l.gets("9.9.9.1", 1000, true) {
			l.Error("an unload leaves a temporary rule")
		}
		if _, err := h.Temporary(l.Context()); !errors.Is(err, datapath.ErrNotLoaded) {
			l.Errorf("after an unload: %v", err)
		}
	})
}

// TestTemporaryAcrossTargets moves a policy from one target to another while a temporary rule is in force. After the rule is removed, it must drop no
// packets on any target.
func TestTemporaryAcrossTargets(t *testing.T) {
	onEnds(t, "", func(e *ends) {
		h := operate.Host{Instance: e.Instance, Warn: func(err error) { e.Errorf("warned: %v", err) }}
		options, text := control.ApplyOptions{}, "rules: [{name: other, proto: udp, port: 1001, then: drop}]\n"
		for i, from := range ways {
			to := ways[(i+1)%len(ways)]
			for _, w := range []way{from, to} {
				options.Target = w.target
				if _, err := e.try(text, options); err != nil {
					e.Fatal(err)
				}
				if w == to {
					break
				}
				if _, err := h.AddTemporary(e.Context(), operate.TemporaryOrder{Rule: "{name: drops, proto: udp, port: 1000, then: drop}", For: "1h"}); err != nil {
					e.Fatal(err)
				}
			}
			if to.target == plan.TargetXDP && e.gets("192.0.2.9", 1000, false) {
				e.Errorf("from %s to %s: the rule is lost", from.name, to.name)
			}
			if err := h.RemoveTemporary(e.Context(), "drops"); err != nil {
				e.Fatal(err)
			}
			if !e.gets("192.0.2.9", 1000, true) {
				e.Errorf("from %s to %s: it drops though it is removed", from.name, to.name)
			}
		}
	})
}

// TestTemporaryClock sets the machine's clock while there are temporary rules. A rule that has ended must stay ended, also when another rule is
// added. A rule that has not ended must be listed, and can be removed. Netfilter compares ends with the clock, so there FinishTrial must end the rule
// in time.
func TestTemporaryClock(t *testing.T) {
	onLists(t, func(l *lists, w way) {
		if w.beside {
			return
		}
		l.body.Store("9.9.9.77\n")
		if _, err := l.try(l.policy(w, l.url), control.ApplyOptions{Target: w.target, Fetch: &feed.Fetcher{}}); err != nil {
			l.Fatal(err)
		}
		h := operate.Host{Instance: l.Instance, Warn: func(err error) { l.Errorf("warned: %v", err) }}
		// stepped adds a rule that ends after the time left. The rule looks as if it was added before the clock was set by step.
		stepped := func(left, step time.Duration) {
			l.Helper()
			err := l.ChangeTemporary(l.Context(), func([]manifest.Temporary) ([]manifest.Temporary, error) {
				now := time.Now()
				return []manifest.Temporary{{Name: "stepped", Owner: operate.ByHand, Rule: "{name: stepped, proto: udp, port: 1000, then: drop}",
					Began: now, Until: now.Add(left - step).UTC(), Ends: image.Monotonic() + left}}, nil
			})
			if err != nil {
				l.Fatal(err)
			}
		}
		names := func() (names []string) {
			l.Helper()
			list, err := h.Temporary(l.Context())
			if err != nil {
				l.Fatal(err)
			}
			for _, r := range list {
				names = append(names, r.Name)
			}
			return names
		}
		stepped(2*time.Second, -24*time.Hour) // the clock was set back by a day
		time.Sleep(3 * time.Second)
		if _, err := l.FinishTrial(l.Context()); err != nil {
			l.Fatal(err)
		}
		if _, err := h.AddTemporary(l.Context(), operate.TemporaryOrder{Rule: "{name: other, proto: udp, port: 4, then: drop}", For: "1h"}); err != nil {
			l.Fatal(err)
		}
		if got := names(); !slices.Equal(got, []string{"other"}) {
			l.Errorf("the clock was set back: the rules are %v", got)
		}
		if !l.gets("9.9.9.1", 1000, true) {
			l.Error("the clock was set back: a rule that has ended drops")
		}
		stepped(time.Hour, 24*time.Hour) // the clock was set forward by a day
		if _, err := l.FinishTrial(l.Context()); err != nil {
			l.Fatal(err)
		}
		if got := names(); !slices.Equal(got, []string{"stepped"}) {
			l.Errorf("the clock was set forward: the rules are %v", got)
		}
		if l.gets("9.9.9.1", 1000, false) {
			l.Error("the clock was set forward: a rule that goes on drops nothing")
		}
		if err := h.RemoveTemporary(l.Context(), "stepped"); err != nil || !l.gets("9.9.9.1", 1000, true) {
			l.Errorf("the clock was set forward: the rule cannot be removed: %v", err)
		}
	})
}
