// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/testutil"
)

// host is an instance of Floodwall in its own namespaces, with the device fw0 (192.0.2.1). The other end of fw0 is fw1.
type host struct {
	*testing.T
	control.Instance
	mode datapath.Mode // that applyTo asks for
}

// newHost returns a host in the namespaces of the test, or nil in the process outside of them. At the end of the test it unloads the instance, and
// checks that nothing remains.
func newHost(t *testing.T) *host {
	t.Helper()
	h := newBareHost(t)
	if h != nil {
		testutil.Veth(t, "fw0", "fw1", "192.0.2.1/24", "2001:db8::1/64")
	}
	return h
}

// settled waits until fw0 has its link-local address and duplicate address detection has ended. The kernel does both some time after the device is
// up.
func (h *host) settled() {
	h.Helper()
	ok := testutil.Eventually(slow, func() bool {
		out, err := exec.Command("ip", "-6", "addr", "show", "dev", "fw0").Output()
		return err == nil && bytes.Contains(out, []byte("inet6 fe80:")) && !bytes.Contains(out, []byte("tentative"))
	})
	if !ok {
		h.Fatal("fw0 has no link-local address")
	}
}

// newBareHost is newHost without the devices.
func newBareHost(t *testing.T) *host {
	t.Helper()
	if !testutil.Inside(t) {
		return nil
	}
	before := testutil.Now()
	h := &host{T: t, Instance: control.Instance{Dir: datapath.DefaultDir}}
	t.Cleanup(func() {
		if err := h.Unload(context.Background()); err != nil && !errors.Is(err, datapath.ErrNotLoaded) {
			t.Error(err)
		}
		if found := testutil.Leftovers(before); found != nil {
			t.Errorf("left behind:\n%s", strings.Join(found, "\n"))
		}
	})
	return h
}

// try applies a policy to the device fw0. Without the key checks in the text, the policy has no checks: the verifier spends up to half of its time on
// them, and most of these tests do not depend on them.
func (h *host) try(text string, o control.ApplyOptions) (*control.Applied, error) {
	h.Helper()
	if !strings.Contains(text, "checks:") {
		text += "\nchecks: off\n"
	}
	p, err := policy.Parse("policy.yaml", []byte("devices: [fw0]\n"+text))
	if err != nil {
		h.Fatal(err)
	}
	return h.Apply(h.Context(), p, o)
}

func (h *host) apply(policy string) *control.Applied {
	h.Helper()
	applied, err := h.try(policy, control.ApplyOptions{})
	if err != nil {
		h.Fatal(err)
	}
	return applied
}

// ip runs commands of the tool ip in the namespaces.
func (h *host) ip(commands ...string) {
	h.Helper()
	for _, c := range commands {
		h.run("ip", strings.Fields(c)...)
	}
}

func (h *host) run(name string, args ...string) {
	h.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		h.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

func (h *host) send(n int, description string) {
	h.Helper()
	if err := testutil.Send("fw1", description, n); err != nil {
		h.Fatal(err)
	}
}

// sendInOrder sends packets from one CPU. A veth has a receive queue for each CPU, and on a busy machine packets of different queues may overtake
// each other.
func (h *host) sendInOrder(packets ...string) {
	h.Helper()
	defer testutil.OnOneCPU(h)()
	for _, p := range packets {
		h.send(1, p)
	}
}

// counts returns the packet counts of all rules that have a line in the policy.
func (h *host) counts() map[string]uint64 {
	h.Helper()
	s, err := h.Status(context.Background())
	if err != nil {
		h.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, r := range s.Rules {
		if r.Line > 0 {
			counts[r.Name] = r.Packets
		}
	}
	return counts
}

func (h *host) wantCounts(when string, want map[string]uint64) {
	h.Helper()
	testutil.Eventually(slow, func() bool { return cmp.Equal(want, h.counts()) }) // packets may wait for a CPU
	if diff := cmp.Diff(want, h.counts()); diff != "" {
		h.Errorf("packets %s (-want +got):\n%s", when, diff)
	}
}

// ask returns the loaded program's verdict on a packet, and the reason.
func (h *host) ask(description string) string {
	h.Helper()
	spec, err := packet.Parse(description)
	if err != nil {
		h.Fatal(err)
	}
	x, err := h.Explain(context.Background(), spec)
	if err != nil {
		h.Fatal(err)
	}
	return x.Verdict + " " + x.Reason
}

func (h *host) block(bans ...ban.Ban) control.Fill {
	h.Helper()
	fill, err := h.Block(h.Context(), "", bans)
	if err != nil {
		h.Fatal(err)
	}
	return fill
}

func TestCountersStay(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	h.apply(`
rules:
  - {name: a, proto: udp, port: 1, then: drop}
  - {name: b, proto: udp, port: 2, then: drop}
  - {proto: udp, port: 3, then: drop}
`)
	h.send(3, "udp 198.51.100.1:5 > 192.0.2.1:1")
	h.send(4, "udp 198.51.100.1:5 > 192.0.2.1:2")
	h.send(5, "udp 198.51.100.1:5 > 192.0.2.1:3")
	unnamed := "rule 3"
	for name := range h.counts() {
		if name != "a" && name != "b" {
			unnamed = name
		}
	}
	h.wantCounts("of the first policy", map[string]uint64{"a": 3, "b": 4, unnamed: 5})

	// A named rule keeps its count unless its verdict changes. A rule without a name keeps its count only if it does not change at all.
	h.apply(`
rules:
  - {name: new, proto: udp, port: 9, then: drop}
  - {proto: udp, port: 3, then: drop}
  - {name: b, proto: udp, port: [2, 4], then: drop}
`)
	h.send(1, "udp 198.51.100.1:5 > 192.0.2.1:4")
	counts := h.counts()
	if counts["b"] != 5 || counts["new"] != 0 || len(counts) != 3 {
		t.Errorf("packets of the second policy: %v, want 5 of b and none of new", counts)
	}

	// A rule that was removed and is added again starts at zero. A rule with a new verdict also starts at zero.
	h.apply(`
rules:
  - {name: a, proto: udp, port: 1, then: drop}
  - {name: b, proto: udp, port: 2, then: pass}
`)
	h.wantCounts("of the third policy", map[string]uint64{"a": 0, "b": 0})
}

// TestCountersMove applies a policy that needs more counters than the map has. The counts must move to a larger map, and stay there.
func TestCountersMove(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	const first = "  - {name: a, proto: udp, port: 1, then: drop}\n"
	h.apply("rules:\n" + first)
	h.send(3, "udp 198.51.100.1:5 > 192.0.2.1:1")
	var many strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&many, "  - {name: r%d, proto: udp, port: %d, sport: %d, then: drop}\n", i, 2+i, 1+i%7)
	}
	h.apply("rules:\n" + many.String() + first)
	h.send(2, "udp 198.51.100.1:5 > 192.0.2.1:1")
	counts := h.counts()
	testutil.Eventually(slow, func() bool { counts = h.counts(); return counts["a"] >= 5 }) // packets may wait for a CPU
	if counts["a"] != 5 || len(counts) != 2001 {
		t.Errorf("a has %d packets of 5 among %d rules of 2001", counts["a"], len(counts))
	}
	h.apply("rules:\n" + first)
	h.send(1, "udp 198.51.100.1:5 > 192.0.2.1:1")
	h.wantCounts("back in the first policy", map[string]uint64{"a": 6})
}

// banPolicy returns a policy with dynamic sets of the given names. For each set, a rule drops packets from the set's entries.
func banPolicy(max int, names ...string) string {
	sets, rules := "sets:\n", "rules:\n"
	for _, n := range names {
		sets += fmt.Sprintf("  %s: {dynamic: true, max: %d, timeout: 1h}\n", n, max)
		rules += fmt.Sprintf("  - {name: rule-%s, from: $%s, then: drop}\n", n, n)
	}
	return sets + rules
}

func TestBansStay(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	h.apply(banPolicy(100, "bans"))
	h.block(
		ban.Ban{Prefix: netip.MustParsePrefix("198.51.100.0/24"), Why: "guessing"},
		ban.Ban{Prefix: netip.MustParsePrefix("203.0.113.7/32"), Until: ban.Never},
		ban.Ban{Prefix: netip.MustParsePrefix("2001:db8:bad::/48"), Until: ban.After(48 * time.Hour)},
		ban.Ban{Prefix: netip.MustParsePrefix("203.0.113.8/32"), Until: ban.After(time.Second)},
	)
	time.Sleep(2100 * time.Millisecond) // longer than the ban that lasts a second
	if applied := h.apply(banPolicy(1000, "other", "bans")); applied.Bans != 3 {
		t.Errorf("%d bans were kept, want 3", applied.Bans)
	}
	for _, p := range []string{"198.51.100.9:1 > 192.0.2.1:2", "203.0.113.7:1 > 192.0.2.1:2", "[2001:db8:bad::1]:1 > [2001:db8::1]:2"} {
		if got := h.ask("udp " + p); got != "drop rule-bans" {
			t.Errorf("%s: %s, want drop rule-bans", p, got)
		}
	}
	list, err := h.Blocked(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range list {
		left := "forever"
		if b.Until != ban.Never {
			left = fmt.Sprintf("%.0fh", time.Until(b.Until).Hours())
		}
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", b.Prefix, b.Set, left, b.Why)))
	}
	want := []string{"198.51.100.0/24 bans 1h guessing", "203.0.113.7/32 bans forever", "2001:db8:bad::/48 bans 48h"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("blocked (-want +got):\n%s", diff)
	}

	// A policy without a set of the same name discards the set's entries.
	h.apply(banPolicy(100, "other"))
	if list, err := h.Blocked(context.Background(), ""); err != nil || len(list) != 0 {
		t.Errorf("blocked: %v, %v, want nothing", list, err)
	}
}

// TestRefusals adds more entries to a set than fit. The entries that fit must be added, and the error must name the other ones.
func TestRefusals(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	h.apply(banPolicy(10, "bans", "other"))
	var bans []ban.Ban
	for bits := 10; bits < 20; bits++ {
		bans = append(bans, ban.Ban{Prefix: netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), bits)})
	}
	for i := range 4 {
		bans = append(bans, ban.Ban{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{172, byte(i), 0, 0}), 17)})
	}
	fill, err := h.Block(t.Context(), "bans", bans)
	if diff := cmp.Diff(control.Fill{Set: "bans", Changed: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, Entries: 10, Capacity: 10}, fill); diff != "" {
		t.Errorf("fill (-want +got):\n%s", diff)
	}
	var refused ban.Refusals
	if !errors.As(err, &refused) {
		t.Fatalf("blocking: %v, want refusals", err)
	}
	var got []int
	for _, r := range refused {
		got = append(got, r.Index)
	}
	if diff := cmp.Diff([]int{10, 11, 12, 13}, got); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	fill, err = h.Unblock(t.Context(), "bans", []netip.Prefix{bans[0].Prefix, bans[10].Prefix})
	if !errors.As(err, &refused) || len(refused) != 1 || refused[0].Index != 1 || len(fill.Changed) != 1 {
		t.Errorf("unblocking one of two: %+v, %v", fill, err)
	}
	var set *ban.SetError
	if _, err := h.Block(t.Context(), "", bans); err != nil && !errors.As(err, &refused) {
		t.Errorf("with several sets, bans is the one that is meant: %v", err)
	}
	if _, err := h.Block(t.Context(), "none", bans); !errors.As(err, &set) || !strings.Contains(set.Hint(), "bans, other") {
		t.Errorf("blocking in a set that is not there: %v", err)
	}
}

func TestGuard(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	session := func(client, server string) []facts.Session {
		return []facts.Session{{Client: netip.MustParseAddrPort(client), Server: netip.MustParseAddrPort(server)}}
	}
	v4 := session("203.0.113.5:50000", "192.0.2.1:22")
	v6 := session("[2001:db8:5::5]:50000", "[2001:db8::1]:22")
	h.ip("link add other type veth peer name other1", "link set other1 up", "addr add 203.0.113.129/26 dev other", "link set other up")
	for _, c := range []struct {
		policy   string
		sessions []facts.Session
		by       string // the rule or check that would cut off the sessions; "": none
	}{
		{"default: pass", v4, ""},
		{"default: drop", v4, "`default: drop`"},
		{"default: drop", nil, ""},
		{"default: drop\nservices: [{name: ssh, port: tcp/22}]", v4, ""},
		{"default: drop\nservices: [{name: ssh, port: tcp/22}]", v6, ""},
		{"default: drop\nservices: [{name: ssh, port: tcp/22, from: 203.0.113.0/24}]", v6, `rule "ssh:others"`},
		{"default: pass\nrules: [{name: all, family: ipv6, then: drop}]", v6, `rule "all"`},
		{"default: pass\nrules: [{name: syn, proto: tcp, flags: \"syn/syn,ack\", then: drop}]", v4, `rule "syn"`},
		{"default: pass\nrules: [{name: high, proto: tcp, sport: 1024-65535, port: 22, then: drop}]", v4, `rule "high"`},
		{"default: pass\nchecks: {bogon-source: on}", v4, `check "bogon-source"`},
		// First sessions that do not use fw0: over another device, and within this host. Then sessions over fw0.
		{"default: drop", session("203.0.113.130:50000", "203.0.113.129:22"), ""},
		{"default: drop", session("127.0.0.1:50000", "127.0.0.1:22"), ""},
		{"default: drop", session("192.0.2.9:50000", "192.0.2.1:22"), "`default: drop`"},
		{"default: drop", session("[2001:db8::9]:50000", "[2001:db8::1]:22"), "`default: drop`"},
	} {
		_, err := h.try(c.policy, control.ApplyOptions{Sessions: c.sessions, DryRun: true})
		var lockout *control.LockoutError
		switch {
		case c.by == "" && err != nil:
			t.Errorf("%q: %v, want it applied", c.policy, err)
		case c.by != "" && (!errors.As(err, &lockout) || lockout.Reason != c.by):
			t.Errorf("%q: %v, want it refused because of %s", c.policy, err, c.by)
		}
	}
}

func TestNothingLoaded(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	spec, err := packet.Parse("udp 192.0.2.7:1 > 192.0.2.1:2")
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"status":  func() error { _, err := h.Status(context.Background()); return err },
		"unload":  func() error { return h.Unload(t.Context()) },
		"block":   func() error { _, err := h.Block(t.Context(), "", nil); return err },
		"unblock": func() error { _, err := h.Unblock(t.Context(), "", nil); return err },
		"blocked": func() error { _, err := h.Blocked(context.Background(), ""); return err },
		"explain": func() error { _, err := h.Explain(context.Background(), spec); return err },
	} {
		if err := call(); !errors.Is(err, datapath.ErrNotLoaded) {
			t.Errorf("%s: %v, want %v", name, err, datapath.ErrNotLoaded)
		}
	}
}

// TestApplyStops cancels the context of an apply: before the apply starts, and while another command holds the lock.
func TestApplyStops(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	p, err := policy.Parse("policy.yaml", []byte("devices: [fw0]\n"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Apply(ctx, p, control.ApplyOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("apply: %v, want it canceled", err)
	}
	if _, err := h.Status(context.Background()); !errors.Is(err, datapath.ErrNotLoaded) {
		t.Errorf("status: %v, want nothing loaded", err)
	}

	h.apply("")
	state, err := datapath.OpenState(h.Dir, false)
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := state.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := h.Apply(ctx, p, control.ApplyOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("apply while another has the lock: %v", err)
	}
}
