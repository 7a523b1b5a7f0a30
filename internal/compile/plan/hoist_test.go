// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
)

// TestHoistKeepsMeaning sends random packets through the stages of plans for random policies. Rules are placed by Hoist, by random placements, after
// random stages, or by random costs. Each packet must get the verdict of Eval. It must be counted once, at a matching rule with that verdict. It must
// be charged to the same limits and counted by the same rules that only count.
func TestHoistKeepsMeaning(t *testing.T) {
	_, seed := subject.Seeded(t)
	planned := map[string]int{}
	for i := range 150 {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		s := subject.StatefulSubject(t, r, 1+r.IntN(8))
		hints := subject.RuleHints(s, &subject.Writer{Rand: r})
		for target := range subject.StagesOf {
			pl, err := anyPlan(r, s.Program, target)
			var place *plan.StageError
			if errors.As(err, &place) && place.Hint() != "" {
				planned["refused"]++
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			planned[string(target)]++
			for range 200 {
				frame := packet.Random(r, hints[r.IntN(len(hints))])
				pkt := packet.Decode(frame)
				pkt.Value[packet.State] = uint32(r.IntN(int(packet.State.Size())))
				if target != plan.TargetXDP && pkt.Value[packet.Fragment] == packet.FragmentLater {
					pkt.Value[packet.State] = packet.StateNew // conntrack assigns a state only to complete datagrams
				}
				if wrong := follow(s, pl, &pkt); wrong != "" {
					t.Fatalf("policy %d, %s: %x state %d: %s\n%s%s", i, target, frame, pkt.Value[packet.State], wrong,
						s.Program, placements(pl))
				}
			}
		}
	}
	for target := range subject.StagesOf {
		if planned[string(target)] < 20 {
			t.Errorf("%s: only %d plans", target, planned[string(target)])
		}
	}
	t.Logf("plans: %v", planned)
}

// effects are the effects of rules other than verdicts. They are the limits that are tested, each of which may charge the packet, and the rules that
// only count.
type effects []string

// world returns a World in which every second packet exceeds every second limit.
func (e *effects) world(s *subject.Subject, names []ir.Rule) ir.World {
	return ir.World{
		Member: s.Has,
		Over: func(limit int, pkt *packet.Packet) bool {
			*e = append(*e, fmt.Sprintf("limit %d", limit))
			return (uint32(limit)+pkt.Value[packet.Length])%2 == 0
		},
		Observe: func(r ir.Reason) { *e = append(*e, "observed by "+names[r.Index].Name) },
	}
}

// follow sends a packet through the stages of a plan. It returns a text about the mistake in the result, or "" if there is none.
func follow(s *subject.Subject, pl *plan.Plan, pkt *packet.Packet) string {
	verdict := ir.Pass
	var counted []int // indices of rules; -1 is the default
	var got, wanted effects
	for _, stage := range subject.StagesOf[pl.Target] {
		if stage == plan.StageFilter && pl.Uses(stage) && pkt.Value[packet.Fragment] == packet.FragmentLater {
			return "" // conntrack has reassembled the datagram, and the test checks the datagram
		}
		rule, v, again := at(s, pl, stage, pkt, &got)
		if rule != nothing && !again {
			counted = append(counted, rule)
		}
		if verdict = v; v != ir.Pass {
			break
		}
	}
	want, reason := s.Program.Eval(pkt, wanted.world(s, s.Program.Rules))
	slices.Sort(got)
	slices.Sort(wanted)
	switch {
	case pkt.Kind != packet.IP:
		return ""
	case !slices.Equal(got, wanted):
		return fmt.Sprintf("%v, want %v: %s", got, wanted, s.Program.ReasonName(reason))
	case verdict != want:
		return fmt.Sprintf("got %s, want %s %s", verdict, want, s.Program.ReasonName(reason))
	case len(counted) == 0 && !(reason.Kind == ir.ReasonRule && s.Program.Rules[reason.Index].Reply): // a rule for replies may have made it wait
		return "not counted"
	case len(counted) > 1 && !slices.ContainsFunc(counted, func(rule int) bool { return rule >= 0 && early(s, &s.Program.Rules[rule]) }):
		return fmt.Sprintf("counted at %v", counted)
	}
	return ""
}

// early reports whether a rule tests a property that later stages do not have, read differently, or must not test twice. Later stages may then count
// the rule's packets again.
func early(s *subject.Subject, r *ir.Rule) bool {
	local := func(i int) bool { d := s.Program.Sets[i].Dynamic; return d != nil && d.Local }
	for _, m := range slices.Concat(r.Src, r.Dst) {
		if slices.ContainsFunc(m.Sets, local) {
			return true
		}
	}
	return r.Reply || len(r.Over)+len(r.Payload) > 0 || slices.ContainsFunc(r.Match, func(m ir.Match) bool { return m.Field == packet.VLAN || m.Field == packet.Fragment })
}

// nothing takes the place of a rule's index if no rule of a stage decides a packet.
const nothing = -2

// at returns the decision of a stage about a packet.
func at(s *subject.Subject, pl *plan.Plan, stage plan.Stage, pkt *packet.Packet, e *effects) (rule int, v ir.Verdict, again bool) {
	for _, step := range pl.At(stage) {
		r := *pl.Of(step, stage)
		only := ir.Program{Sets: s.Program.Sets, Limits: s.Program.Limits, Rules: []ir.Rule{r}}
		if _, reason := only.Eval(pkt, e.world(s, only.Rules)); reason.Kind == ir.ReasonRule {
			return step.Rule, r.Verdict, step.Again
		}
	}
	if pl.Default.At(stage) {
		return -1, s.Program.Default, false
	}
	return nothing, ir.Pass, false
}

func placements(pl *plan.Plan) string {
	var b strings.Builder
	for i, p := range pl.Rules {
		fmt.Fprintf(&b, "%s at %s: %s\n", pl.Program.Rules[i].Name, p.Stages(), p.Why)
	}
	fmt.Fprintf(&b, "default at %s\n", pl.Default.Stages())
	return b.String()
}

// TestPlaces checks the stages of the rules of one policy, and the reasons why they are not earlier.
func TestPlaces(t *testing.T) {
	const text = `
default: drop
rules:
  - {name: plain, port: tcp/80, then: pass}
  - {name: local, to: local, port: tcp/22, then: pass}
  - {name: known, state: [established, related], then: pass}
  - {name: closed, port: tcp/25, then: reject}
  - {name: behind, port: tcp/26, then: drop}
`
	for _, tt := range []struct {
		target plan.Target
		want   string
	}{
		{plan.TargetXDP, "plain xdp, local xdp, known filter, closed filter, behind filter, default filter"},
		{plan.TargetNftables, "plain ingress, local raw, known filter, closed filter, behind filter, default filter"},
		{plan.TargetIptables, "plain raw, local raw, known filter, closed filter, behind filter, default filter"},
	} {
		s := subject.Lower(t, text)
		pl, err := plan.Hoist(s.Program, tt.target)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i, p := range pl.Rules {
			if r := s.Program.Rules[i]; r.Kind == ir.RuleKindRule {
				got = append(got, fmt.Sprintf("%s %s", r.Name, p.Stage))
			}
		}
		got = append(got, fmt.Sprintf("default %s", pl.Default.Stage))
		if text := strings.Join(got, ", "); text != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.target, text, tt.want)
		}
	}
}

// TestHeldBack checks rules that reject packets, beside rules that test the host's own addresses. No answer is made at ingress. So these rules must
// run at raw, where the earlier rules are tested again. The rules after them must also run there.
func TestHeldBack(t *testing.T) {
	const own = "{name: own, to: local, port: tcp/22, then: pass}"
	const away = "{name: away, to: 10.9.0.0/24, then: reject}"
	for _, tt := range []struct {
		target plan.Target
		text   string
		want   string
	}{
		{plan.TargetXDP, "rules: [" + own + ", " + away + ", {name: known, state: established, then: pass}]", "xdp raw filter, default filter"},
		{plan.TargetNftables, "rules: [" + own + ", " + away + ", {name: known, state: established, then: pass}]", "raw raw filter, default filter"},
		{plan.TargetXDP, "default: drop\nreplies: drop\nrules: [" + away + ", " + own + "]", "raw raw, default xdp and raw"},
		{plan.TargetXDP, "rules: [{name: far, from: 198.51.100.0/24, to: local, then: pass}, {name: near, from: 203.0.113.0/24, then: reject}]", "xdp raw, default raw"},
	} {
		s := subject.Lower(t, "essential: {neighbors: off, routers: off, multicast: off, icmp-errors: off, icmpv6-errors: off, dhcp: off, dhcpv6: off, fragments: off}\n"+tt.text)
		pl, err := plan.Hoist(s.Program, tt.target)
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		var got []string
		for _, p := range pl.Rules {
			got = append(got, string(p.Stage))
		}
		if text := fmt.Sprintf("%s, default %s", strings.Join(got, " "), pl.Default.Stages()); text != tt.want {
			t.Errorf("%s: %s\n got %s\nwant %s", tt.target, tt.text, text, tt.want)
		}
	}
}

// TestFamiliesApart checks two rules that cannot match the same packet. One is for sources of one family, and the other is for destinations of the
// other family. Neither may affect the stage of the other.
func TestFamiliesApart(t *testing.T) {
	for _, behind := range []string{
		"{name: behind, to: 2001:db8::/32, proto: udp, fragment: [none, first], then: drop}",
		"{name: behind, family: ipv6, proto: udp, vlan: 5, then: drop}",
	} {
		s := subject.Lower(t, "rules: [{name: known, from: 198.51.100.0/24, state: invalid, then: pass}, "+behind+"]")
		pl, err := plan.Hoist(s.Program, plan.TargetXDP)
		if err != nil {
			t.Errorf("%s: %v", behind, err)
			continue
		}
		if pl.Rules[1].Stage != plan.StageXDP {
			t.Errorf("%s: at %s, want %s", behind, pl.Rules[1].Stage, plan.StageXDP)
		}
	}
}

// TestFloodBeforeFilter checks a protected UDP service that precedes rules at filter. Only the last rule that passes packets of the service must be
// repeated at filter, because that rule charges no limit.
func TestFloodBeforeFilter(t *testing.T) {
	for _, late := range []string{
		"default: drop\nrules: [{name: many, port: tcp/80, over: {connections: 20, per: from}, then: drop}]\n",
		"default: drop\nrules: [{name: old, proto: tcp, state: invalid, then: drop}]\n",
	} {
		s := subject.Lower(t, late+"services: [{name: web, port: tcp/80}, {name: game, port: udp/7000, udp: protect}]\n")
		pl, err := plan.Hoist(s.Program, plan.TargetXDP)
		if err != nil {
			t.Errorf("%s: %v", late, err)
			continue
		}
		var again []string
		for _, step := range pl.At(plan.StageFilter) {
			if r := s.Program.Rules[step.Rule]; step.Again && strings.HasPrefix(r.Name, "game") {
				again = append(again, r.Name)
			}
		}
		if !slices.Equal(again, []string{"game"}) {
			t.Errorf("%s: repeated at filter: %v", late, again)
		}
	}
}

// TestOwnSourceBeforeReject checks that a rule rejects only packets that have passed the check own-source.
func TestOwnSourceBeforeReject(t *testing.T) {
	const rules = "rules: [{name: closed, port: tcp/25, then: reject}, {name: shut, port: tcp/26, then: drop}]\n"
	for _, tt := range []struct {
		checks       string
		target       plan.Target
		check        plan.Stage
		closed, shut plan.Stage
	}{
		{"{profile: off, own-source: on}", plan.TargetXDP, plan.StageXDP, plan.StageRaw, plan.StageXDP},
		{"{profile: off, own-source: on}", plan.TargetNftables, plan.StageRaw, plan.StageRaw, plan.StageIngress},
		{"{profile: off, own-source: on}", plan.TargetIptables, plan.StageRaw, plan.StageFilter, plan.StageRaw},
		{"{profile: strict, own-source: off}", plan.TargetNftables, plan.StageRaw, plan.StageRaw, plan.StageIngress},
	} {
		s := subject.Lower(t, rules+"checks: "+tt.checks)
		pl, err := plan.Hoist(s.Program, tt.target)
		if err != nil {
			t.Fatal(err)
		}
		if at := tt.target.CheckStage(packet.OwnSource, false); at != tt.check {
			t.Errorf("%s: own-source at %s, want %s", tt.target, at, tt.check)
		}
		if pl.Rules[0].Stage != tt.closed || pl.Rules[1].Stage != tt.shut {
			t.Errorf("%s, checks %s: closed at %s, shut at %s, want %s, %s", tt.target, tt.checks, pl.Rules[0].Stage,
				pl.Rules[1].Stage, tt.closed, tt.shut)
		}
	}
}

// TestNoPlace checks the errors for rules for which a target has no stage.
func TestNoPlace(t *testing.T) {
	for _, tt := range []struct{ target, rules, rule, key string }{
		{"iptables", "{name: tagged, vlan: 5, then: drop}", "tagged", "vlan"},
		{"iptables", `{name: ecn, flags: "cwr/cwr", then: drop}`, "ecn", "flags"},
		{"nftables", "{name: old, state: invalid, then: drop}, {name: tagged, vlan: 5, then: pass}", "tagged", "vlan"},
		{"nftables", "{name: tagged, vlan: 5, then: pass}, {name: old, state: invalid, then: drop}", "tagged", "vlan"},
		{"nftables", "{name: names, dns: {name: evil.example}, then: drop}", "names", "dns"},
		{"iptables", "{name: any, dns: {type: ANY}, then: drop}", "any", "dns"},
		{"nftables", "{name: short, dns: {type: ANY}, then: truncate}", "short", "dns"},
		{"nftables", "{name: shown, proto: udp, then: drop, sample: 1/10}", "shown", "sample"},
		{"nftables", "{name: text, proto: udp, payload: {contains: x}, then: drop}", "text", "payload: contains"},
		{"iptables", "{name: text, payload: {contains: x}, then: drop}", "text", "payload: contains"},
		{"iptables", `{name: latin, proto: udp, payload: {contains: "|e9|", nocase: true}, then: drop}`, "latin", "payload: nocase"},
		{"iptables", "{name: fast, over: {rate: 300000/s, per: from}, then: drop}", "fast", "over"},
		{"iptables", "{name: bits, over: {rate: 8mbit/s, per: from}, then: drop}", "bits", "over"},
		{"iptables", "{name: all, over: {rate: 8/s}, then: drop}", "all", "over"},
		{"nftables", "{name: bits, over: {rate: 8mbit/s, burst: 1mbit}, then: drop}", "bits", "over"},
		{"nftables", "{name: old, state: invalid, then: drop}, {name: late, over: {rate: 8/s}, vlan: 5, then: drop}", "late", "vlan"},
		{"nftables", "{name: much, over: {rate: 8/s, per: from}, proto: tcp, then: pass}, {name: old, state: invalid, then: drop}", "much", "over"},
		{"nftables", "{name: ban, over: {rate: 8/s, per: from, ban: 1h}, proto: tcp, then: drop}", "ban", "over"},
		{"iptables", "{name: ban, over: {rate: 8/s, per: from, ban: 1h}, proto: tcp, then: drop}", "ban", "over"},
		{"nftables", "{name: closed, port: udp/113, vlan: 5, then: reject}", "closed", "vlan"},
		{"xdp", "{name: old, state: invalid, then: drop}, {name: any, dns: {type: ANY}, then: reject}", "any", "dns"},
		{"nftables", "{name: tagged, vlan: 5, placement: filter, then: drop}", "tagged", "placement: filter"},
		{"nftables", "{name: mine, to: local, placement: ingress, then: drop}", "mine", "placement: ingress"},
		{"iptables", "{name: old, state: invalid, placement: raw, then: drop}", "old", "placement: raw"},
		{"xdp", "{name: any, dns: {type: ANY}, placement: raw, then: drop}", "any", "placement: raw"},
		{"nftables", "{name: a, placement: filter, then: drop}, {name: tagged, vlan: 5, then: pass}", "tagged", "vlan"},
	} {
		s := subject.Lower(t, "sets: {bans: {dynamic: true, max: 10}}\nrules: ["+tt.rules+"]")
		_, err := plan.Hoist(s.Program, plan.Target(tt.target))
		var place *plan.StageError
		if !errors.As(err, &place) || place.Rule != tt.rule || place.Key != tt.key || place.Hint() == "" {
			t.Errorf("%s, %s: %v, want an error that names %s and %s", tt.target, tt.rules, err, tt.rule, tt.key)
		}
	}
}
