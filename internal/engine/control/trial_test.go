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

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/test/testutil"
)

// way is where a policy runs: a target, and whether it needs netfilter beside XDP.
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

// policy drops or rejects UDP to the first port, drops that to the second, and has a dynamic set.
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

// ends are sockets at the ports that the policies of these tests drop.
type ends struct {
	*host
	sockets map[int]*net.UDPConn
}

// markerPort is a port that no policy of these tests drops. What sendInOrder has sent before its packet arrives before it, however busy the
// machine is.
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

// arriveLate is how long after the packet to markerPort one may come that was sent before it.
const arriveLate = 20 * time.Millisecond

// arrived takes a packet that has come to a port, and reports whether there was one. It does not wait.
func (e *ends) arrived(port int) bool {
	e.Helper()
	raw, err := e.sockets[port].SyscallConn()
	if err == nil {
		var failed error
		err = raw.Control(func(fd uintptr) {
			_, _, failed = unix.Recvfrom(int(fd), make([]byte, 2048), unix.MSG_DONTWAIT)
		})
		if err == nil && errors.Is(failed, unix.EAGAIN) {
			return false
		}
		err = errors.Join(err, failed)
	}
	if err != nil {
		e.Fatal(err)
	}
	return true
}

// arrives waits for a packet at a port.
func (e *ends) arrives(port int, wait time.Duration) bool {
	e.sockets[port].SetReadDeadline(time.Now().Add(wait))
	_, _, err := e.sockets[port].ReadFromUDP(make([]byte, 2048))
	return err == nil || e.arrived(port) // the time may be over before it has looked at all
}

// decider tells by packets which policy decides: old, new, nothing, or which ports get through.
func (e *ends) decider() string {
	e.Helper()
	ports := []int{1000, 1001, 2000, 2001}
	var packets, through []string
	for _, port := range append(slices.Clone(ports), markerPort) {
		packets = append(packets, fmt.Sprintf("udp 192.0.2.9:5555 > 192.0.2.1:%d", port))
	}
	if err := testutil.SendFor("fw1", packets, func(sent int) bool { return sent < 1 }); err != nil {
		e.Fatal(err)
	}
	if !e.arrives(markerPort, time.Minute) {
		e.Fatalf("a packet to port %d, which nothing drops, does not arrive", markerPort)
	}
	time.Sleep(arriveLate)
	for _, port := range ports {
		if e.arrived(port) {
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

// start applies old, if it is one, and then new with a trial. It returns the name of what is to decide after the trial.
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

// clear unloads, and looks for what is left.
func (e *ends) clear() {
	e.Helper()
	if err := e.Unload(context.Background()); err != nil && !errors.Is(err, datapath.ErrNotLoaded) {
		e.Error(err)
	}
	e.wantNothingLeft()
	e.wantDecider("after unload", "nothing")
}

// wantNothingLeft looks into all of netfilter, and for pins.
func (h *host) wantNothingLeft() {
	h.Helper()
	if found := testutil.LeftoverPins(); found != nil {
		h.Errorf("left behind:\n%s", strings.Join(found, "\n"))
	}
	if left := strings.ToLower(h.ruleset()); strings.Contains(left, "floodwall") {
		h.Errorf("left in netfilter:\n%s", left)
	}
}

// ruleset is all that nft, iptables and ipset hold.
func (h *host) ruleset() string {
	h.Helper()
	out, err := exec.Command("sh", "-c", "nft -s list ruleset 2>/dev/null; iptables-save; ip6tables-save; ipset list -sorted").CombinedOutput()
	if err != nil {
		h.Fatalf("%v: %s", err, out)
	}
	// The probe of internal/kernel/netfilter stays when its own removal fails; it has no chain.
	return regexp.MustCompile(`(?m)^# .*\n| timeout \d+\b|^table inet floodwall-probe \{\n(\t.*\n)*\}\n`).ReplaceAllString(string(out), "")
}

// shortPairs are the pairs of ways, by their numbers, that the short form takes: those that differ most. Each way is once the
// first and once the second of a pair.
var shortPairs = [][2]int{{-1, 1}, {0, 2}, {1, 0}, {2, 3}, {3, 1}}

// forWays runs a test for pairs of ways, from nothing as well: for each of them in the long form. Each pair has ends of its own,
// and a number.
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

// onEnds runs a test with ends of its own, beside others.
func onEnds(t *testing.T, name string, test func(*ends)) {
	t.Run(name, func(t *testing.T) {
		if e := newEnds(t); e != nil {
			test(e)
		}
	})
}

// TestTrialExpires does nothing during a trial but to send packets: the kernel returns to the policy before.
func TestTrialExpires(t *testing.T) {
	forWays(t, func(e *ends, _ int, from, to way) {
		t := e.T
		before := e.duringTrial(from, to)
		e.awaitDecider(before)
		testutil.Eventually(time.Minute, func() bool { // what stands in goes on for a moment
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
		if number, err := e.FinishTrial(t.Context()); err != nil || number != 0 { // the confirmation has settled it
			t.Errorf("settling again: generation %d, %v", number, err)
		}
		e.wantDecider("after settling", before)
		if before == "nothing" {
			e.wantNothingLeft()
		}
	})
}

// duringTrial applies with a short trial and looks at what decides meanwhile. On a machine that is so slow that the trial may
// end before it has looked, it tries again with a longer one.
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

// TestTrialConfirmed keeps the new policy, and goes back and forth after that.
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

// TestApplyOverTrial applies a policy while another is on trial: the one from before that returns, and no other, and
// without a new trial none does.
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
		if i%4 == 1 { // a sample, since each takes its time
			time.Sleep(netfilter.MinTrial + 200*time.Millisecond)
		}
		if number, err := e.FinishTrial(t.Context()); number != 0 || err != nil {
			t.Errorf("settling: generation %d, %v", number, err)
		}
		e.wantDecider("in the end", decides)
	})
}

// TestRollbackPastTrial rolls back, lets a trial expire, and rolls back once more: the policy that the first rollback left
// is still there to return to, and has not been taken for that of the trial.
func TestRollbackPastTrial(t *testing.T) {
	e := newEnds(t)
	if e == nil {
		return
	}
	for _, w := range ways[2:] { // of which generations are records
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
