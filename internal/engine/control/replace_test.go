// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/model/cost"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/testutil"
)

// costs are the costs of a fictional host. A drop at filter costs ten times as much as a drop at raw. Tests before filter cost as much as on most
// hosts.
func costs() *cost.Model {
	work := cost.Work{Hook: 100, Rule: 50, Set: 50, Limit: 100, Local: 50}
	m := &cost.Model{
		Time:  time.Now(),
		Reach: map[string]float64{"xdp": 50, "ingress": 300, "raw": 500, "filter": 5000},
		Work: map[string]cost.Work{
			"xdp/xdp": work, "nftables/ingress": work, "nftables/raw": work, "iptables/raw": work,
			"nftables/filter": {Hook: 10, Rule: 5, Set: 5}, "iptables/filter": {Hook: 10, Rule: 5, Set: 5},
		},
	}
	return m
}

// quiet and attack are mixes of traffic. With quiet, the rule "published" belongs at filter; with attack, it belongs before filter.
var (
	quiet  = cost.Mix{Seconds: 1, Arrived: 100_000, Forwarded: 99_000, Local: 900, Rules: map[string]uint64{"published": 100}}
	attack = cost.Mix{Seconds: 1, Arrived: 100_000, Forwarded: 1000, Local: 900, Rules: map[string]uint64{"published": 98_100}}
)

// published is the policy of the articles, with bans and a list.
const published = `
sets: {bans: {dynamic: true, max: 100, timeout: 1h}}
rules:
  - {name: banned, from: $bans, placement: earliest, then: drop}
  - {name: published, to: local, proto: udp, port: 1000, then: drop}
  - {name: other, proto: udp, port: 1001, placement: earliest, then: drop}
`

// stages returns the stages of the rules that have a line in the policy.
func (h *host) stages() string {
	h.Helper()
	s, err := h.Status(context.Background())
	if err != nil {
		h.Fatal(err)
	}
	var list []string
	for _, r := range s.Rules {
		if r.Line > 0 {
			list = append(list, fmt.Sprintf("%s %s", r.Name, r.Stage))
		}
	}
	return strings.Join(list, ", ")
}

// replace places the rules again for a mix of traffic, and checks the stage of the rule "published".
func (h *host) replace(mix cost.Mix, want plan.Stage) {
	h.Helper()
	m, err := h.Replace(h.Context(), costs(), mix)
	if err != nil {
		h.Fatal(err)
	}
	if m == nil || len(m.Rules) != 1 || m.Rules[0].Name != "published" || m.Rules[0].To != want || (m.Saves > 0) == mix.NAT {
		h.Fatalf("moved: %+v, want published at %s", m, want)
	}
	if got := h.stages(); !strings.Contains(got, fmt.Sprintf("published %s", want)) {
		h.Fatalf("stages %s, want published at %s", got, want)
	}
}

// TestReplace moves a rule there and back on each target. Verdicts, counts and bans must stay, and Rollback must return to the previous policy.
func TestReplace(t *testing.T) {
	for _, target := range allTargets {
		onEnds(t, string(target), func(e *ends) { e.moves(target) })
	}
}

// moves is TestReplace for a target.
func (e *ends) moves(target plan.Target) {
	t := e.T
	early := map[plan.Target]plan.Stage{plan.TargetXDP: plan.StageXDP}[target]
	if early == "" {
		early = plan.StageRaw
	}
	for _, policy := range []string{"rules: [{name: before, proto: udp, port: 2000, then: drop}]", published} {
		if _, err := e.try(policy, control.ApplyOptions{Target: target, Costs: costs()}); err != nil {
			t.Fatal(err)
		}
	}
	e.block(someBans()...)
	want := map[string]uint64{"banned": 0, "published": 0, "other": 0}
	translated := quiet // NAT, as when Docker starts: a rule that was moved must then return to filter at any cost
	translated.NAT = true
	for round, mix := range []cost.Mix{quiet, attack, quiet, translated, quiet} {
		e.replace(mix, []plan.Stage{plan.StageFilter, early}[round%2])
		if m, err := e.Replace(t.Context(), costs(), mix); m != nil || err != nil {
			t.Errorf("%s: again: %v, %v", target, m, err)
		}
		if e.passes(9, 1000) || e.passes(9, 1001) || e.passes(7, 2001) || !e.passes(9, 2000) {
			t.Errorf("%s: verdicts are others after move %d", target, round)
		}
		for name := range want {
			want[name]++
		}
		e.wantCounts(fmt.Sprintf("on %s after move %d", target, round), want)
		e.wantBlocked("after a move", someBlocked)
	}
	e.wantMoves(target, 5)
	if now, err := e.Rollback(t.Context()); err != nil || now.Generation == 0 {
		t.Fatalf("%s: rollback: %+v, %v", target, now, err)
	}
	if got := e.stages(); !strings.HasPrefix(got, "before ") {
		t.Errorf("%s: the rollback returned to %s", target, got)
	}
	if now, err := e.Rollback(t.Context()); err != nil || !strings.Contains(e.stages(), "published "+string(plan.StageFilter)) {
		t.Errorf("%s: the second rollback: %+v, %v", target, now, err)
	}
	e.clear()
}

// wantMoves checks how many moves the placement section of the status has.
func (h *host) wantMoves(target plan.Target, want int) {
	h.Helper()
	p, err := h.Placement(h.Context(), costs())
	if err != nil {
		h.Fatal(err)
	}
	text, _ := json.Marshal(p)
	if p.Mode != "auto" || p.Fixed != "" || len(p.Last) != want || p.Mix == nil || p.Predicted == nil || !strings.Contains(p.Last[0].Reason, "ns a packet") {
		h.Errorf("%s: placement %s", target, text)
	}
}

// TestReplaceKeepsLists changes the policy file and its list after the apply. A move must use the policy and the list that were applied.
func TestReplaceKeepsLists(t *testing.T) {
	e := newEnds(t)
	if e == nil {
		return
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	write := func(policy, list string) {
		for name, text := range map[string]string{file: policy, filepath.Join(filepath.Dir(file), "list.txt"): list} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("devices: [fw0]\nsets: {listed: {file: list.txt}}\nrules:\n"+
		"  - {name: listed, from: $listed, placement: earliest, then: drop}\n"+
		"  - {name: published, to: local, proto: udp, port: 1000, then: drop}\n", "192.0.2.64/28\n2001:db8:9::/48\n")
	p, err := policy.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Apply(t.Context(), p, control.ApplyOptions{Target: plan.TargetNftables, Costs: costs()}); err != nil {
		t.Fatal(err)
	}
	write("nonsense", "192.0.2.9\n")
	e.replace(quiet, plan.StageFilter)
	if e.passes(70, 2000) || !e.passes(9, 2000) || e.passes(9, 1000) {
		t.Error("what moved is not what was applied")
	}
	if s, err := e.Status(t.Context()); err != nil || s.Policy != file || s.Sets[0].Entries != 2 {
		t.Errorf("status %+v, %v", s, err)
	}
}

// TestReplaceNot applies policies whose rules must not move: without costs, with limits, on trial.
func TestReplaceNot(t *testing.T) {
	e := newEnds(t)
	if e == nil {
		return
	}
	const limited = published + "  - {name: slow, proto: udp, port: 2001, over: {rate: 10/s, per: from}, then: drop}\n"
	for _, test := range []struct {
		policy string
		o      control.ApplyOptions
		want   string
	}{
		{published, control.ApplyOptions{}, "without a cost model"},
		{limited, control.ApplyOptions{Costs: costs()}, "limits would begin anew"},
		{"rules: [{name: published, placement: raw, to: local, then: drop}]", control.ApplyOptions{Costs: costs()}, "the policy says"},
		{published, control.ApplyOptions{Costs: costs(), Confirm: time.Minute}, "on trial"},
	} {
		test.o.Target = plan.TargetNftables
		if _, err := e.try(test.policy, test.o); err != nil {
			t.Fatal(err)
		}
		before := e.ruleset()
		if m, err := e.Replace(t.Context(), costs(), quiet); m != nil || err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("moved %v, %v; want %q", m, err, test.want)
		}
		if diff := cmp.Diff(before, e.ruleset()); diff != "" {
			t.Errorf("%s: -before +after:\n%s", test.want, diff)
		}
		e.clear()
	}
}

// TestReplaceFaults makes single calls of tools fail during a move. Either nothing may change, or the move must be complete.
func TestReplaceFaults(t *testing.T) {
	for _, target := range allTargets {
		onEnds(t, string(target), func(e *ends) { e.replaceFaults(target) })
	}
}

// replaceFaults is TestReplaceFaults for a target.
func (e *ends) replaceFaults(target plan.Target) {
	t := e.T
	fail, calls := e.sabotage()
	step := testutil.Scaled(5, 1)
	if target == plan.TargetIptables { // which makes many calls
		step = testutil.Scaled(16, 1)
	}
	fail(0)
	for _, policy := range []string{"rules: [{name: before, proto: udp, port: 2000, then: drop}]", published} {
		if _, err := e.try(policy, control.ApplyOptions{Target: target, Costs: costs()}); err != nil {
			t.Fatal(err)
		}
	}
	e.block(ban.Ban{Prefix: netip.MustParsePrefix("192.0.2.7/32")})
	if target == plan.TargetIptables {
		e.makeBuiltIn()
	}
	mixes, moves, failed := []cost.Mix{quiet, attack}, 0, 0
	for n := 1; ; n += step {
		before, stages := e.ruleset(), e.stages()
		fail(n)
		m, err := e.Replace(t.Context(), costs(), mixes[moves%2])
		done := calls() < n
		fail(0)
		switch {
		case err == nil && m != nil:
			moves++
			if _, err := e.FinishTrial(t.Context()); err != nil { // the next command removes what is left
				t.Error(err)
			}
		case err == nil || !strings.Contains(err.Error(), "sabotage"):
			t.Fatalf("%s, call %d: %v, %v", target, n, m, err)
		default:
			failed++
			if diff := cmp.Diff(before, e.ruleset()); diff != "" || e.stages() != stages {
				t.Errorf("%s, call %d changes (-before +after):\n%s", target, n, diff)
			}
		}
		if e.passes(9, 1000) || e.passes(7, 2001) || !e.passes(9, 2001) {
			t.Errorf("%s, call %d: verdicts are others", target, n)
		}
		if done || t.Failed() {
			break
		}
	}
	t.Logf("%s: %d moves, %d failed", target, moves, failed)
	if failed == 0 {
		t.Errorf("%s: no fault stopped a move", target)
	}
	if _, err := e.Rollback(t.Context()); err != nil || !strings.HasPrefix(e.stages(), "before ") {
		t.Errorf("%s: rollback: %v", target, err)
	}
	e.clear()
}

// makeBuiltIn creates the built-in chains of the table filter. The tool creates them with the first rule, and they stay.
func (h *host) makeBuiltIn() {
	h.Helper()
	for _, tool := range []string{"iptables", "ip6tables"} {
		for _, chain := range []string{"INPUT", "FORWARD"} {
			h.run(tool, "-A", chain, "-j", "ACCEPT")
			h.run(tool, "-D", chain, "-j", "ACCEPT")
		}
	}
}

// TestApplyByCounts applies a policy again. Its rules must be placed by the counts since the first apply.
func TestApplyByCounts(t *testing.T) {
	e := newEnds(t)
	if e == nil {
		return
	}
	for _, port := range []int{1000, 2000} { // a port whose packets the rule drops, and one whose packets it does not
		for range 2 {
			if _, err := e.try(published, control.ApplyOptions{Target: plan.TargetNftables, Costs: costs()}); err != nil {
				t.Fatal(err)
			}
			e.send(1500, fmt.Sprintf("udp 192.0.2.9:5555 > 192.0.2.1:%d", port))
		}
		want := map[int]plan.Stage{1000: plan.StageRaw, 2000: plan.StageFilter}[port]
		if got := e.stages(); !strings.Contains(got, "published "+string(want)) {
			t.Errorf("after packets to port %d: %s, want published at %s", port, got, want)
		}
		if err := e.Unload(t.Context()); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
}
