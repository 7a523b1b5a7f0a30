// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestCountersOfUnnamedRules adds a rule above rules without names. Their positions change, but the rules must keep their counts.
func TestCountersOfUnnamedRules(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	const rules = `
  - {proto: udp, port: 1, ttl: 64, then: drop}
  - {name: between, proto: icmp, then: drop}
  - {proto: udp, port: 2, from: 198.51.100.0/24, then: drop}
`
	h.apply("rules:" + rules)
	h.send(3, "udp 198.51.100.1:5 > 192.0.2.1:1")
	h.send(4, "udp 198.51.100.1:5 > 192.0.2.1:2")
	h.wantCounts("at first", map[string]uint64{"rule-1": 3, "between": 0, "rule-3": 4})
	h.apply("rules:\n  - {name: new, proto: udp, port: 9, then: drop}" + rules)
	h.wantCounts("with a rule above", map[string]uint64{"new": 0, "rule-2": 3, "between": 0, "rule-4": 4})

	// An unnamed rule with a different list of addresses is another rule, even if its first addresses are the same.
	many := func(last string) string {
		list := ""
		for i := range 20 {
			list += fmt.Sprintf("10.0.%d.0/24, ", 2*i)
		}
		return "rules:\n  - {proto: udp, port: 1, from: [" + list + last + "], then: drop}\n"
	}
	h.apply(many("198.51.100.1"))
	h.send(3, "udp 198.51.100.1:5 > 192.0.2.1:1")
	h.apply(many("198.51.100.2"))
	h.wantCounts("of other addresses", map[string]uint64{"rule-1": 0})
}

// TestCountersOfGoneRules applies a policy for which the map of counters is too small. The map has counts of a removed rule. No new rule may start
// with these counts.
func TestCountersOfGoneRules(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	const a = "rules:\n  - {name: a, proto: udp, port: 1, then: drop}\n"
	h.apply(a + "  - {name: gone, proto: udp, port: 2, then: drop}\n")
	h.send(3, "udp 198.51.100.1:5 > 192.0.2.1:1")
	h.send(4, "udp 198.51.100.1:5 > 192.0.2.1:2")
	h.apply(a)
	var many strings.Builder
	for i := range 1500 {
		fmt.Fprintf(&many, "  - {name: r%d, proto: udp, port: %d, sport: %d, then: drop}\n", i, 10+i, 1+i%7)
	}
	h.apply(a + many.String())
	for name, packets := range h.counts() {
		if want := map[string]uint64{"a": 3}[name]; packets != want {
			t.Errorf("rule %s has %d packets, want %d", name, packets, want)
		}
	}
}

// TestDeviceComesBack removes the device and creates it again. Bans and counts must still exist after the next apply.
func TestDeviceComesBack(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	policy := banPolicy(100, "bans")
	h.apply(policy)
	h.block(ban.Ban{Prefix: netip.MustParsePrefix("198.51.100.0/24"), Why: "guessing"})
	h.send(3, "udp 198.51.100.1:5 > 192.0.2.1:1")
	h.ip("link del fw0")
	if _, err := h.Status(context.Background()); !errors.Is(err, datapath.ErrNotLoaded) || !strings.Contains(err.Error(), "has gone (fw0)") {
		t.Errorf("status without the device: %v", err)
	}
	testutil.Veth(t, "fw0", "fw1", "192.0.2.1/24")
	if applied := h.apply(policy); applied.Bans != 1 {
		t.Errorf("%d bans were kept, want 1", applied.Bans)
	}
	h.send(2, "udp 198.51.100.1:5 > 192.0.2.1:1")
	h.wantCounts("of the device that came back", map[string]uint64{"rule-bans": 5})
}

// TestDeviceGone removes one of two devices. status must say so.
func TestDeviceGone(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	h.ip("link add gone type veth peer name gone1")
	if _, err := h.try("", control.ApplyOptions{Devices: []string{"fw0", "gone"}}); err != nil {
		t.Fatal(err)
	}
	h.ip("link del gone")
	s, err := h.Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"device gone has gone: what returns under its name is filtered by `floodwall repair`, or by `floodwall daemon` at once"}
	if diff := cmp.Diff(want, s.Open); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// TestDeviceRenamed renames the device of a policy with rules in netfilter, which match the device by its name. Until the device has its name again,
// status must say which part is open, and repair must name the device. A policy in XDP alone must not be affected.
func TestDeviceRenamed(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	rename := func(from, to string) {
		h.ip("link set " + from + " down")
		h.ip("link set " + from + " name " + to)
		h.ip("link set " + to + " up")
	}
	for _, c := range []struct {
		verdict string
		want    []string
	}{
		{"drop", nil},
		{"reject", []string{"device fw0 has another name now, so rules beside XDP do not filter it: rename it back, or apply the policy with the new name"}},
	} {
		h.apply("rules: [{name: a, proto: udp, port: 1000, then: " + c.verdict + "}]")
		for _, step := range []struct {
			from, to string
			want     []string
		}{{"fw0", "lan0", c.want}, {"lan0", "fw0", nil}} {
			rename(step.from, step.to)
			s, err := h.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(step.want, s.Open); diff != "" {
				t.Errorf("%s, as %s (-want +got):\n%s", c.verdict, step.to, diff)
			}
			r, err := h.Repair(t.Context())
			var names []string // the device's name in the policy, as in the JSON of repair
			if step.want != nil {
				names = []string{"fw0"}
			}
			if err != nil || r.Any() || !slices.Equal(r.Renamed, names) {
				t.Errorf("%s, as %s: repair says %+v, %v; want renamed %v", c.verdict, step.to, r, err, names)
			}
		}
	}
}

// TestRanges blocks ranges of addresses. All prefixes of a range must be added, whatever their lengths, or none if the set is full.
func TestRanges(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	h.apply(banPolicy(20, "bans"))
	pieces := func(number int, prefixes ...string) (bans []ban.Ban) {
		for _, p := range prefixes {
			bans = append(bans, ban.Ban{Prefix: netip.MustParsePrefix(p), Range: number})
		}
		return bans
	}
	// 10.0.0.1 to 10.0.2.127 has 9 lengths.
	long := pieces(2, "10.0.0.1/32", "10.0.0.2/31", "10.0.0.4/30", "10.0.0.8/29", "10.0.0.16/28", "10.0.0.32/27",
		"10.0.0.64/26", "10.0.0.128/25", "10.0.1.0/24", "10.0.2.0/25")
	bans := append(pieces(0, "192.0.2.7/32"), long...)
	bans = append(bans, pieces(3, "198.51.100.1/32", "198.51.100.2/31")...)
	fill, err := h.Block(t.Context(), "", bans)
	if diff := cmp.Diff(control.Fill{Set: "bans", Changed: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, Entries: 13, Capacity: 20}, fill); diff != "" || err != nil {
		t.Errorf("%v, fill (-want +got):\n%s", err, diff)
	}

	// First as many prefixes as fit, then the same ones again, and then one too many.
	var list []string
	for i := range 7 {
		list = append(list, fmt.Sprintf("203.0.113.%d/32", i))
	}
	for range 2 {
		if fill, err := h.Block(t.Context(), "", pieces(1, list...)); err != nil || fill.Entries != 20 {
			t.Errorf("blocking 7: %+v, %v", fill, err)
		}
	}
	fill, err = h.Block(t.Context(), "", pieces(1, append(list, "203.0.113.7/32")...))
	var refused ban.Refusals
	if !errors.As(err, &refused) || len(fill.Changed) != 0 || fill.Entries != 20 {
		t.Errorf("blocking one too many: %+v, %v", fill, err)
	}
}

// TestVLANOffload has a rule for a VLAN on two devices: one may remove VLAN tags from frames (VLAN offload), and one does not. e2e/guest tests
// drivers that remove them.
func TestVLANOffload(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	testutil.RequireTool(t, "ethtool")
	for _, c := range []struct {
		offload, policy, note string
	}{
		{"on", "rules: [{name: tag, vlan: 7, then: drop}]",
			"what reaches device fw0 from VLAN devices at its other end may have its tag beside the frame, and rule \"tag\" asks for them: " +
				"`ethtool -K DEVICE txvlan off` there leaves it in the frame"},
		{"on", "rules: [{name: plain, ttl: 7, then: drop}]", ""},
		{"off", "rules: [{name: tag, vlan: 7, then: drop}]", ""},
	} {
		h.run("ethtool", "-K", "fw0", "rxvlan", c.offload)
		notes := slices.DeleteFunc(h.apply(c.policy).Notes, func(note string) bool { return strings.HasPrefix(note, "XDP in native mode on veth") })
		if got := strings.Join(notes, "\n"); got != c.note {
			t.Errorf("offload %s, %s: notes are %q, want %q", c.offload, c.policy, got, c.note)
		}
	}
}

// TestExplainLocal explains packets with addresses of this host by a policy file, without privileges and with nothing loaded.
func TestExplainLocal(t *testing.T) {
	c, err := control.CompileSource("policy.yaml", []byte(`devices: [fw0]
checks: {profile: off, own-source: on}
sets: {bans: {dynamic: true, max: 5}}
rules: [{name: bans, from: $bans, then: drop}, {name: here, to: local, then: drop}]`))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ line, want string }{
		{"udp 198.51.100.1:5 > 127.0.0.1:9", "drop here"},
		{"udp 198.51.100.1:5 > 198.51.100.2:9", "pass default"},
		{"udp 127.0.0.1:5 > 198.51.100.2:9", "drop own-source"},
	} {
		spec, err := packet.Parse(row.line)
		if err != nil {
			t.Fatal(err)
		}
		x, err := c.Explain(spec, plan.TargetXDP)
		if err != nil {
			t.Fatal(err)
		}
		if got := x.Verdict + " " + x.Reason; got != row.want {
			t.Errorf("%s: %s, want %s", row.line, got, row.want)
		}
	}
}

// TestCountersOfConditions applies rules with conditions. It applies them again with other rules above them, and then with other conditions. A rule
// without a name must keep its count while its conditions are the same. A named rule must always keep its count.
func TestCountersOfConditions(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	const rules = `
  - {dns: {name: [evil.example]}, then: drop}
  - {dns: {name: $bad}, then: drop}
  - {proto: udp, port: 1, payload: {contains: evil}, then: drop}
  - {proto: udp, port: 2, payload: {at: {offset: 0, bytes: "evil"}}, then: drop}
  - {proto: udp, port: 3, over: {rate: 1/h, burst: 1}, then: drop}
  - {dns: {type: ANY}, slip: 2, then: truncate}
  - {name: named, proto: udp, port: 4, over: {rate: 1/h, burst: 1}, then: drop}
`
	policy := func(above, rules string) string {
		return "default: pass\nsets: {bad: {names: [bad.example]}, worse: {names: [worse.example]}}\nrules:" + above + rules
	}
	h.apply(policy("", rules))
	for i, line := range []string{
		"53 dns=A,www.evil.example", "53 dns=A,bad.example", `1 payload="an evil one"`, `2 payload="evil"`, "3", "53 dns=ANY,a.example", "4",
	} {
		h.send(10+i, "udp 198.51.100.1:5 > 192.0.2.1:"+line)
	}
	h.wantCounts("at first", map[string]uint64{
		"rule-1": 10, "rule-2": 11, "rule-3": 12, "rule-4": 13, "rule-5": 13, "rule-6": 15, "named": 15,
	})
	h.apply(policy(`
  - {name: names, dns: {name: [a.example, $worse]}, then: drop}
  - {name: text, proto: udp, port: 9, payload: {contains: [a, b], at: {offset: 2, bytes: "c"}}, then: drop}
  - {name: rate, proto: udp, port: 9, over: [{rate: 2/h, burst: 1}, {rate: 3/h, burst: 1}], then: drop}`, rules))
	h.wantCounts("with rules above", map[string]uint64{
		"names": 0, "text": 0, "rate": 0, "rule-4": 10, "rule-5": 11, "rule-6": 12, "rule-7": 13, "rule-8": 13, "rule-9": 15, "named": 15,
	})
	h.apply(policy("", strings.NewReplacer(
		"[evil.example]", "[vile.example]", "$bad", "$worse", "contains: evil", "contains: vile", `"evil"`, `"vile"`, "1/h", "2/h", "slip: 2", "slip: 3",
	).Replace(rules)))
	h.wantCounts("with other conditions", map[string]uint64{
		"rule-1": 0, "rule-2": 0, "rule-3": 0, "rule-4": 0, "rule-5": 0, "rule-6": 0, "named": 15,
	})
}
