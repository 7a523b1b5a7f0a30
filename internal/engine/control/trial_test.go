// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/test/testutil"
)

// way is a place where a policy runs: a target, and whether the policy also has rules in netfilter beside XDP.
type way struct {
	name   string
	target plan.Target
	beside bool
}

var (
	noWay = way{name: "nothing"}
	ways  = []way{
		{"xdp", plan.TargetXDP, false}, {"beside", plan.TargetXDP, true},
		{"nftables", plan.TargetNftables, false}, {"iptables", plan.TargetIptables, false},
	}
)

// policy returns a policy that drops or rejects UDP to the first port, drops UDP to the second port, and has a dynamic set.
func (w way) policy(name string, port int) string {
	verdict := "drop"
	if w.beside {
		verdict = "reject"
	}
	return fmt.Sprintf(`
sets:
  bans: {dynamic: true, max: 1000, timeout: 1h}
rules:
  - {name: banned, from: $bans, then: drop}
  - {name: %s, proto: udp, port: %d, then: %s}
  - {name: %s-too, proto: udp, port: %d, then: drop}
`, name, port, verdict, name, port+1)
}

// ends is a host with sockets at the ports that the policies of these tests drop.
type ends struct {
	*host
	sockets map[int]*net.UDPConn
}

// markerPort is a port that no policy of these tests drops. sendInOrder sends the packet to this port last. When it has arrived, the earlier packets
// have also arrived, however busy the machine is.
const markerPort = 3000

// newEnds listens at ports 1000, 1001, 2000, 2001 and at markerPort. It returns nil outside of the namespaces.
func newEnds(t *testing.T) *ends {
	t.Helper()
	for _, tool := range []string{"nft", "iptables-restore", "ipset"} {
		testutil.RequireTool(t, tool)
	}
	h := newHost(t)
	if h == nil {
		return nil
	}
	h.ip("link set fw0 address 02:00:00:00:00:02")
	e := &ends{h, map[int]*net.UDPConn{}}
	for _, port := range []int{1000, 1001, 2000, 2001, markerPort} {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: port})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		e.sockets[port] = c
	}
	return e
}

// passes sends a packet from 192.0.2.HOST to a port and reports whether it arrives.
func (e *ends) passes(host, port int) bool {
	e.Helper()
	e.sendInOrder(fmt.Sprintf("udp 192.0.2.%d:5555 > 192.0.2.1:%d", host, port), fmt.Sprintf("udp 192.0.2.9:5556 > 192.0.2.1:%d", markerPort))
	if !e.arrives(markerPort, time.Minute) {
		e.Fatalf("a packet to port %d, which nothing drops, does not arrive", markerPort)
	}
	return e.arrives(port, arriveLate)
}

// arriveLate is the longest time by which an earlier packet may arrive after the packet to markerPort.
const arriveLate = 20 * time.Millisecond

// arrives waits for a packet at a port, and reports whether one has arrived.
func (e *ends) arrives(port int, wait time.Duration) bool {
	e.Helper()
	return testutil.Arrives(e, e.sockets[port], wait)
}

// decider sends packets to find out which policy is in force. It returns old, new or nothing. If the result fits none of them, it returns the ports
// that packets reach.
func (e *ends) decider() string {
	e.Helper()
	ports := []int{1000, 1001, 2000, 2001}
	var packets, through []string
	for _, port := range append(slices.Clone(ports), markerPort) {
		packets = append(packets, fmt.Sprintf("udp 192.0.2.9:5555 > 192.0.2.1:%d", port))
	}
	restore := testutil.OnOneCPU(e) // so that the packet to markerPort comes last
	err := testutil.SendFor("fw1", packets, func(sent int) bool { return sent < 1 })
	restore()
	if err != nil {
		e.Fatal(err)
	}
	if !e.arrives(markerPort, time.Minute) {
		e.Fatalf("a packet to port %d, which nothing drops, does not arrive", markerPort)
	}
	time.Sleep(arriveLate)
	for _, port := range ports {
		if e.arrives(port, 0) {
			through = append(through, fmt.Sprint(port))
		}
	}
	switch got := strings.Join(through, " "); got {
	case "2000 2001":
		return "old"
	case "1000 1001":
		return "new"
	case "1000 1001 2000 2001":
		return "nothing"
	default:
		return "a mixture, which passes ports " + got
	}
}

func (e *ends) wantDecider(when, want string) {
	e.Helper()
	if got := e.decider(); got != want {
		e.Errorf("%s %s decides, want %s", when, got, want)
	}
}

// start applies old, unless from is noWay, and then new on trial. It returns the name of the policy that must be in force after the trial.
func (e *ends) start(from, to way, trial time.Duration) (before string) {
	e.Helper()
	before = "nothing"
	if from != noWay {
		if _, err := e.try(from.policy("old", 1000), control.ApplyOptions{Target: from.target}); err != nil {
			e.Fatalf("old policy: %v", err)
		}
		before = "old"
		e.wantDecider("after its apply", before)
	}
	if _, err := e.try(to.policy("new", 2000), control.ApplyOptions{Target: to.target, Confirm: trial}); err != nil {
		e.Fatalf("new policy: %v", err)
	}
	return before
}

// clear unloads the instance, and checks that nothing is left.
func (e *ends) clear() {
	e.Helper()
	if err := e.Unload(context.Background()); err != nil && !errors.Is(err, datapath.ErrNotLoaded) {
		e.Error(err)
	}
	e.wantNothingLeft()
	e.wantDecider("after unload", "nothing")
}

// wantNothingLeft checks that nothing is left in netfilter, and that there are no pins.
func (h *host) wantNothingLeft() {
	h.Helper()
	if found := testutil.LeftoverPins(); found != nil {
		h.Errorf("left behind:\n%s", strings.Join(found, "\n"))
	}
	if left := strings.ToLower(h.ruleset()); strings.Contains(left, "floodwall") {
		h.Errorf("left in netfilter:\n%s", left)
	}
}

// ruleset returns all that nft, iptables and ipset list.
func (h *host) ruleset() string {
	h.Helper()
	out, err := exec.Command("sh", "-c", "nft -s list ruleset 2>/dev/null; iptables-save; ip6tables-save; ipset list -sorted").CombinedOutput()
	if err != nil {
		h.Fatalf("%v: %s", err, out)
	}
	// If its own removal fails, the probe table of internal/kernel/netfilter stays. It has no chain.
	return regexp.MustCompile(`(?m)^# .*\n| timeout \d+\b|^table inet floodwall-probe \{\n(\t.*\n)*\}\n`).ReplaceAllString(string(out), "")
}

// shortPairs are the pairs of ways, by their numbers, that the short form tests: the pairs that differ most. Each way is first in one pair and second
// in another.
var shortPairs = [][2]int{{-1, 1}, {0, 2}, {1, 0}, {2, 3}, {3, 1}}

// forWays runs a test for pairs of ways, including pairs that start without a policy. In the long form, it tests all pairs. Each pair has its own
// ends and a number.
func forWays(t *testing.T, test func(e *ends, number int, from, to way)) {
	number := 0
	for i, from := range append([]way{noWay}, ways...) {
		for j, to := range ways {
			if !testutil.Long() && !slices.Contains(shortPairs, [2]int{i - 1, j}) {
				continue
			}
			number++
			onEnds(t, fmt.Sprintf("from %s to %s", from.name, to.name), func(e *ends) {
				test(e, number, from, to)
				e.clear()
			})
		}
	}
}

// onEnds runs a test with its own ends, in parallel with other tests.
func onEnds(t *testing.T, name string, test func(*ends)) {
	t.Run(name, func(t *testing.T) {
		if e := newEnds(t); e != nil {
			test(e)
		}
	})
}

// TestTrialExpires only sends packets during a trial. The kernel must return to the previous policy by itself.
func TestTrialExpires(t *testing.T) {
	forWays(t, func(e *ends, _ int, from, to way) {
		t := e.T
		before := e.duringTrial(from, to)
		e.awaitDecider(before)
		testutil.Eventually(time.Minute, func() bool { // the stand-ins stay for a moment
			s, err := e.Status(t.Context())
			return err != nil || s.Trial == nil
		})
		e.wantDecider("after the trial", before)
		if _, err := e.Confirm(t.Context()); before == "old" && !errors.Is(err, datapath.ErrExpired) || err == nil {
			t.Errorf("confirming too late: %v", err)
		}
		e.wantDecider("after the confirmation that came too late", before)
		if s, err := e.Status(t.Context()); before == "old" && (err != nil || s.Trial != nil || s.Target != from.target || s.Generation != 1) {
			t.Errorf("status after the trial: %+v, %v", s, err)
		} else if before == "nothing" && !errors.Is(err, datapath.ErrNotLoaded) {
			t.Errorf("status after a trial with nothing before: %v", err)
		}
		if number, err := e.FinishTrial(t.Context()); err != nil || number != 0 { // the failed confirmation has already removed the remains
			t.Errorf("settling again: generation %d, %v", number, err)
		}
		e.wantDecider("after settling", before)
		if before == "nothing" {
			e.wantNothingLeft()
		}
	})
}

// duringTrial applies a policy with a short trial, and checks which policy is in force meanwhile. On a slow machine the trial may end before the
// check. Then duringTrial tries again with a longer trial.
func (e *ends) duringTrial(from, to way) (before string) {
	e.Helper()
	for trial := netfilter.MinTrial; ; trial *= 2 {
		before = e.start(from, to, trial)
		applied := time.Now()
		decides := e.decider()
		s, err := e.Status(e.Context())
		if looked := time.Since(applied); looked > trial-1500*time.Millisecond && trial < time.Minute {
			e.Logf("looking took %v", looked)
			e.clear()
			continue
		}
		if err != nil {
			e.Fatal(err)
		}
		if decides != "new" {
			e.Errorf("during the trial %s decides, want new", decides)
		}
		if s.Trial == nil || s.Trial.Left <= 0 || (s.Trial.Returns == 0) != (from == noWay) || s.Target != to.target {
			e.Errorf("status during the trial: target %s, trial %+v", s.Target, s.Trial)
		}
		return before
	}
}

// TestTrialConfirmed confirms the new policy, and rolls back and forth after that.
func TestTrialConfirmed(t *testing.T) {
	forWays(t, func(e *ends, _ int, from, to way) {
		t := e.T
		e.start(from, to, time.Minute)
		e.wantDecider("during the trial", "new")
		now, err := e.Confirm(t.Context())
		if err != nil || now.Policy != "policy.yaml" {
			t.Fatalf("confirm: %+v, %v", now, err)
		}
		e.wantDecider("after the confirmation", "new")
		if s, err := e.Status(t.Context()); err != nil || s.Trial != nil || s.Target != to.target {
			t.Errorf("status after the confirmation: %+v, %v", s, err)
		}
		if _, err := e.Confirm(t.Context()); !errors.Is(err, datapath.ErrNoTrial) {
			t.Errorf("confirming again: %v", err)
		}
		var other *control.PreviousError
		switch _, err := e.Rollback(t.Context()); {
		case from == noWay:
			if !errors.Is(err, datapath.ErrNoPrevious) {
				t.Errorf("rolling back with nothing before: %v", err)
			}
			e.wantDecider("after a rollback that cannot be", "new")
		case from.target != to.target:
			if !errors.As(err, &other) {
				t.Errorf("rolling back to another target: %v", err)
			}
			e.wantDecider("after a rollback that cannot be", "new")
		case err != nil:
			t.Errorf("rolling back: %v", err)
		default:
			e.wantDecider("after a rollback", "old")
			if _, err := e.Rollback(t.Context()); err != nil {
				t.Errorf("rolling back again: %v", err)
			}
			e.wantDecider("after a second rollback", "new")
		}
	})
}

// TestTrialGivenUp rolls back during the trial.
func TestTrialGivenUp(t *testing.T) {
	forWays(t, func(e *ends, _ int, from, to way) {
		t := e.T
		before := e.start(from, to, time.Minute)
		now, err := e.Rollback(t.Context())
		if err != nil || (now.Generation == 0) != (from == noWay) {
			t.Errorf("rolling back: %+v, %v", now, err)
		}
		e.wantDecider("after the rollback", before)
		if _, err := e.Confirm(t.Context()); err == nil {
			t.Error("a trial that was given up was confirmed")
		}
		e.wantDecider("in the end", before)
	})
}

// TestApplyOverTrial applies a policy while another one is on trial. If the new policy is also on trial, only the policy from before both trials may
// return. Otherwise no policy may return.
func TestApplyOverTrial(t *testing.T) {
	forWays(t, func(e *ends, i int, from, to way) {
		t := e.T
		via := ways[(i+i/4)%len(ways)]
		t.Logf("via %s", via.name)
		before := e.start(from, via, netfilter.MinTrial)
		third := strings.ReplaceAll(to.policy("third", 1000), "port: 1001", "port: 2000")
		o := control.ApplyOptions{Target: to.target}
		if i%3 == 0 {
			o.Confirm = time.Minute
		}
		if _, err := e.try(third, o); err != nil {
			t.Fatal(err)
		}
		const decides = "a mixture, which passes ports 1001 2001"
		e.wantDecider("after the third apply", decides)
		if o.Confirm > 0 {
			if now, err := e.Rollback(t.Context()); err != nil || (now.Generation == 0) != (from == noWay) {
				t.Errorf("rolling back: %+v, %v", now, err)
			}
			e.wantDecider("after the rollback", before)
			return
		}
		if i%4 == 1 { // only for some of the pairs, because it takes time
			time.Sleep(netfilter.MinTrial + 200*time.Millisecond)
		}
		if number, err := e.FinishTrial(t.Context()); number != 0 || err != nil {
			t.Errorf("settling: generation %d, %v", number, err)
		}
		e.wantDecider("in the end", decides)
	})
}

// TestRollbackPastTrial rolls back, lets a trial expire, and rolls back again. The policy that the first rollback replaced must still be available,
// and must not be confused with the policy of the trial.
func TestRollbackPastTrial(t *testing.T) {
	e := newEnds(t)
	if e == nil {
		return
	}
	for _, w := range ways[2:] { // the generations of these ways are records
		e.start(w, w, time.Minute)
		confirm := func() error { _, err := e.Confirm(t.Context()); return err }
		back := func() error { _, err := e.Rollback(t.Context()); return err }
		if err := errors.Join(confirm(), back()); err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		e.wantDecider("after the first rollback", "old")
		if _, err := e.try(w.policy("third", 2000), control.ApplyOptions{Target: w.target, Confirm: netfilter.MinTrial}); err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		time.Sleep(netfilter.MinTrial + 200*time.Millisecond)
		if err := back(); err != nil {
			t.Errorf("%s: rolling back after the trial: %v", w.name, err)
		}
		e.wantDecider("after the trial", "old")
		if err := back(); err != nil {
			t.Errorf("%s: rolling back once more: %v", w.name, err)
		}
		e.wantDecider("after the second rollback", "new")
		e.clear()
	}
}

// TestReadAsTrialEnds reads the status all the time while a trial ends. The policy on trial must never look confirmed: `floodwall allow` would keep its
// edit in the file.
func TestReadAsTrialEnds(t *testing.T) {
	for _, w := range []way{ways[0], ways[2], ways[3]} {
		onEnds(t, w.name, func(e *ends) {
			for range 3 {
				e.start(w, w, netfilter.MinTrial)
				s, err := e.Status(e.Context())
				if err != nil {
					e.Fatal(err)
				}
				tried := s.Generation
				for s.Trial != nil || s.Generation == tried {
					if s.Trial == nil {
						e.Fatalf("generation %d is on trial, and the status says that it is confirmed", tried)
					}
					if left := time.Duration(s.Trial.Left * float64(time.Second)); left > 200*time.Millisecond && w.target == plan.TargetXDP {
						time.Sleep(left - 200*time.Millisecond)
					}
					if s, err = e.Status(e.Context()); err != nil {
						e.Fatal(err)
					}
				}
				e.clear()
			}
		})
	}
}
