// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/cost"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// anyPlan plans a program in a random way.
func anyPlan(r *rand.Rand, p *ir.Program, target plan.Target) (*plan.Plan, error) {
	switch r.IntN(4) {
	case 0:
		return plan.Hoist(p, target)
	case 1:
		return plan.Hoist(subject.RandomlyPlaced(r, p, target), target)
	case 2:
		from := make([]plan.Stage, len(p.Rules))
		for i := range from {
			from[i] = subject.StagesOf[target][r.IntN(len(subject.StagesOf[target]))]
		}
		return plan.HoistFrom(p, target, from)
	}
	return plan.Place(p, target, randomModel(r), randomMix(r, p))
}

// randomModel returns a cost model with random costs.
func randomModel(r *rand.Rand) *cost.Model {
	ns := func() float64 { return 1000 * r.Float64() * r.Float64() }
	m := &cost.Model{Reach: map[string]float64{}, Conntrack: ns(), Route: ns(), Work: map[string]cost.Work{}}
	for target, stages := range subject.StagesOf {
		for _, s := range stages {
			m.Reach[string(s)] = ns()
			m.Work[string(target)+"/"+string(s)] = cost.Work{Hook: ns(), Rule: ns(), Set: ns(), Limit: ns(), Local: ns()}
		}
	}
	return m
}

func randomMix(r *rand.Rand, p *ir.Program) cost.Mix {
	mix := cost.Mix{Seconds: 1, Local: r.Uint64N(1000), Forwarded: r.Uint64N(1000), Rules: map[string]uint64{}, Tracked: r.IntN(2) == 0}
	mix.Arrived = mix.Local + mix.Forwarded + 1
	for _, rule := range p.Rules {
		if n := r.Uint64N(1000); r.IntN(2) == 0 {
			mix.Rules[rule.Name] = n
			mix.Arrived += n
		}
	}
	return mix
}

// measured returns a cost model with figures like those of the machine of EXPERIMENTS: a router with a full routing table.
func measured() *cost.Model {
	work := cost.Work{Hook: 15, Rule: 8, Set: 25, Limit: 60, Local: 35}
	m := &cost.Model{
		Reach: map[string]float64{"xdp": 30, "ingress": 160, "raw": 210, "filter": 330}, Conntrack: 250, Route: 90,
		Work: map[string]cost.Work{"xdp/xdp": {Hook: 20, Rule: 0.4, Set: 3, Limit: 20, Local: 12}},
	}
	for _, at := range []string{"nftables/ingress", "nftables/raw", "nftables/filter", "iptables/raw", "iptables/filter"} {
		m.Work[at] = work
	}
	return m
}

// published is the policy of the article. It drops packets from one source to the router itself.
const published = "checks: off\nrules: [{name: x, from: 198.51.100.1, to: local, proto: udp, port: 5001, then: drop}]\n"

// The tests of the article. In one, 280,000 packets per second arrive for the router and are all dropped. In the other, 155 million packets are
// forwarded in ten minutes, while 58,604 packets are dropped.
var (
	attacked   = cost.Mix{Seconds: 600, Arrived: 168_000_000, Rules: map[string]uint64{"x": 168_000_000}}
	forwarding = cost.Mix{Seconds: 600, Arrived: 155_058_604, Forwarded: 155_000_000, Rules: map[string]uint64{"x": 58_604}}
)

// TestPlacements checks the stages of rules with a placement of the policy or of their own. It also checks the message about a stage that the target
// does not have.
func TestPlacements(t *testing.T) {
	const rules = `
rules:
  - {name: as, from: 192.0.2.1, then: drop}
  - {name: tagged, from: 192.0.2.2, vlan: 5, then: drop}
  - {name: own, from: 192.0.2.3, placement: filter, then: drop}
  - {name: first, from: 192.0.2.4, placement: earliest, then: drop}
  - {name: behind, from: 192.0.2.3, placement: earliest, then: pass}
`
	for _, tt := range []struct {
		placement ir.Placement
		target    plan.Target
		want      string
		notes     int
	}{
		{"", plan.TargetXDP, "as xdp, tagged xdp, own filter, first xdp, behind filter, default filter", 0},
		{"auto", plan.TargetNftables, "as ingress, tagged ingress, own filter, first ingress, behind filter, default filter", 0},
		{"ingress", plan.TargetXDP, "as ingress, tagged ingress, own filter, first xdp, behind filter, default filter", 0},
		{"raw", plan.TargetXDP, "as raw, tagged xdp, own filter, first xdp, behind filter, default filter", 0},
		{"raw", plan.TargetNftables, "as raw, tagged ingress, own filter, first ingress, behind filter, default filter", 0},
		{"filter", plan.TargetNftables, "as filter, tagged ingress, own filter, first ingress, behind filter, default filter", 0},
		{"xdp", plan.TargetNftables, "as ingress, tagged ingress, own filter, first ingress, behind filter, default filter", 1},
	} {
		s := subject.Lower(t, "placement: "+string(cmp.Or(tt.placement, "auto"))+rules)
		if s.Program.Placement = tt.placement; tt.placement == "xdp" {
			s.Program.Rules[0].Placement = "xdp" // now the rule itself has a placement
			tt.notes++
		}
		pl, err := plan.Hoist(s.Program, tt.target)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i, p := range pl.Rules {
			got = append(got, fmt.Sprintf("%s %s", s.Program.Rules[i].Name, p.Stage))
		}
		got = append(got, fmt.Sprintf("default %s", pl.Default.Stage))
		if text := strings.Join(got, ", "); text != tt.want {
			t.Errorf("%q, %s:\n got %s\nwant %s", tt.placement, tt.target, text, tt.want)
		}
		if notes := plan.PlacementNotes(s.Program, tt.target); len(notes) != tt.notes {
			t.Errorf("%q, %s: notes %q", tt.placement, tt.target, notes)
		}
	}
}

// TestDefaultPlaced checks that a default that drops runs at the placement of the policy. At an earlier stage, it would drop the packets before the
// rules see them.
func TestDefaultPlaced(t *testing.T) {
	for def, want := range map[string]plan.Stage{"drop": plan.StageFilter, "pass": plan.StageIngress} {
		s := subject.Lower(t, "placement: filter\ndefault: "+def)
		if pl, err := plan.Hoist(s.Program, plan.TargetNftables); err != nil || pl.Default.Stage != want {
			t.Errorf("default %s: at %v, %v, want %s", def, pl.Default, err, want)
		}
	}
}

// TestPlacePublished checks that the article's rule is placed at the cheapest stage according to the article's measurements, for each of the two
// mixes of packets.
func TestPlacePublished(t *testing.T) {
	s := subject.Lower(t, published)
	for _, target := range []plan.Target{plan.TargetNftables, plan.TargetIptables} {
		for _, tt := range []struct {
			what string
			mix  cost.Mix
			want plan.Stage
		}{{"attack", attacked, plan.StageRaw}, {"forwarding", forwarding, plan.StageFilter}} {
			pl := place(t, s.Program, target, tt.mix)
			if pl.Rules[0].Stage != tt.want || !strings.Contains(pl.Rules[0].Why, " packets/s") {
				t.Errorf("%s, %s: at %s, want %s\nwhy: %s\ncosts %+v", target, tt.what, pl.Rules[0].Stage, tt.want, pl.Rules[0].Why, pl.Costs)
			}
		}
	}
}

func place(t *testing.T, p *ir.Program, target plan.Target, mix cost.Mix) *plan.Plan {
	t.Helper()
	pl, err := plan.Place(p, target, measured(), mix)
	if err != nil {
		t.Fatal(err)
	}
	return pl
}

// TestPlaceCrosses increases the share of dropped packets. The rule must move once, to raw. The predicted cost must never be above the cost with the
// rule fixed at either stage.
func TestPlaceCrosses(t *testing.T) {
	s := subject.Lower(t, published)
	var moved []string
	at := plan.StageFilter
	for permyriad := uint64(1); permyriad <= 10_000; permyriad += 37 {
		mix := cost.Mix{Seconds: 1, Arrived: 1_000_000, Forwarded: 1_000_000 - 100*permyriad, Rules: map[string]uint64{"x": 100 * permyriad}}
		pl := place(t, s.Program, plan.TargetNftables, mix)
		if pl.Rules[0].Stage != at {
			at = pl.Rules[0].Stage
			moved = append(moved, fmt.Sprintf("%s at %d", at, permyriad))
		}
		for _, stage := range []plan.Stage{plan.StageRaw, plan.StageFilter} {
			fixed, err := plan.HoistFrom(s.Program, plan.TargetNftables, []plan.Stage{stage})
			if err != nil {
				t.Fatal(err)
			}
			if c := fixed.Predict(measured(), mix).CPU; c < pl.Costs.Predicted.CPU {
				t.Errorf("%d in 10,000: %s costs %g, the chosen %s %g", permyriad, stage, c, at, pl.Costs.Predicted.CPU)
			}
		}
	}
	if len(moved) != 1 || at != plan.StageRaw {
		t.Errorf("moves: %v", moved)
	}
}

// TestPlaceKeeps checks rules that Place must not move, although all rules would cost less at filter.
func TestPlaceKeeps(t *testing.T) {
	nat, bypassed := forwarding, forwarding
	nat.NAT, bypassed.Bypassed = true, true
	for _, tt := range []struct {
		what, policy string
		mix          cost.Mix
		model        *cost.Model
	}{
		{"no model", published, forwarding, nil},
		{"nothing observed", published, cost.Mix{}, measured()},
		{"addresses are translated", published, nat, measured()},
		{"packets take ways round later stages", published, bypassed, measured()},
		{"placement of the policy", "placement: earliest\n" + published, forwarding, measured()},
		{"placement of the rule", strings.Replace(published, "then:", "placement: raw, then:", 1), forwarding, measured()},
		{"a default that drops", "default: drop\n" + published, forwarding, measured()},
		{"the length", strings.Replace(published, "then:", "length: 100, then:", 1), forwarding, measured()},
		{"a limit", strings.Replace(published, "then:", "over: {rate: 1/s, per: from}, then:", 1), forwarding, measured()},
	} {
		s := subject.Lower(t, tt.policy)
		pl, err := plan.Place(s.Program, plan.TargetNftables, tt.model, tt.mix)
		if err != nil {
			t.Fatal(err)
		}
		if pl.Rules[0].Stage != plan.StageRaw {
			t.Errorf("%s: the rule is at %s", tt.what, pl.Rules[0].Stage)
		}
	}
}

// TestPlaceFragments checks the stage of rules that drop later fragments. After conntrack has reassembled a datagram, an earlier rule that tests
// ports and passes packets could decide these fragments. The rules must then stay at a stage before reassembly.
func TestPlaceFragments(t *testing.T) {
	const drops = "{name: x, from: 198.51.100.1, to: local, proto: udp, then: drop}"
	for before, want := range map[string]plan.Stage{
		"": plan.StageFilter,
		"{name: port, proto: udp, port: 53, then: pass}, ":  plan.StageRaw,
		"{name: port, proto: udp, port: 53, then: drop}, ":  plan.StageFilter,
		"{name: host, from: 198.51.100.0/28, then: pass}, ": plan.StageFilter,
	} {
		s := subject.Lower(t, "checks: off\nrules: ["+before+drops+"]\n")
		pl, err := plan.Place(s.Program, plan.TargetNftables, measured(), forwarding)
		if err != nil {
			t.Fatal(err)
		}
		if got := pl.Rules[len(pl.Rules)-1].Stage; got != want {
			t.Errorf("behind %q the rule is at %s, want %s", before, got, want)
		}
	}
}

// TestPlaceApart checks two rules, one of which drops a flood. Only the other rule may move. When the flood matches that rule instead, it must move
// back.
func TestPlaceApart(t *testing.T) {
	s := subject.Lower(t, `
checks: off
rules:
  - {name: flood, from: 192.0.2.0/24, to: local, then: drop}
  - {name: rare, from: 198.51.100.0/24, to: local, proto: tcp, port: 1-1000, then: drop}
`)
	m := measured()
	m.Work["nftables/raw"] = cost.Work{Hook: 1, Rule: 30, Set: 30, Local: 30}
	for hot, cold := range map[string]int{"flood": 1, "rare": 0} {
		mix := cost.Mix{Seconds: 1, Arrived: 1_000_000, Forwarded: 500_000, Rules: map[string]uint64{hot: 500_000}}
		pl, err := plan.Place(s.Program, plan.TargetNftables, m, mix)
		if err != nil {
			t.Fatal(err)
		}
		if pl.Rules[1-cold].Stage != plan.StageRaw || pl.Rules[cold].Stage != plan.StageFilter {
			t.Errorf("flood at %s: %s\n%+v", hot, placements(pl), pl.Costs)
		}
	}
}

// TestPlaceMany places 5,000 rules, or 10,000 with FLOODWALL_LONG=1. Trying each rule separately, or comparing all pairs in each plan, would take
// minutes.
func TestPlaceMany(t *testing.T) {
	r, _ := subject.Seeded(t)
	var b strings.Builder
	b.WriteString("checks: off\nrules:\n")
	mix := cost.Mix{Seconds: 1, Arrived: 20_000_000, Forwarded: 10_000_000, Rules: map[string]uint64{}}
	for i := range testutil.Scaled(1000, 10_000) {
		then := "drop"
		if i%3 == 0 {
			then = "pass"
		}
		fmt.Fprintf(&b, "  - {name: r%d, from: 10.%d.%d.%d, to: local, proto: udp, port: %d, then: %s}\n", i, r.IntN(4), i>>8, i&255, 1+r.IntN(2000), then)
		mix.Rules[fmt.Sprintf("r%d", i)] = r.Uint64N(10)
	}
	s := subject.Lower(t, b.String())
	for target := range subject.StagesOf {
		pl := place(t, s.Program, target, mix)
		if pl.Costs.Predicted.CPU > pl.Costs.Earliest.CPU {
			t.Errorf("%s: %+v", target, pl.Costs)
		}
	}
}

// TestPlaceLookups checks that the predicted cost of many rules in verdict maps equals that of a few rules.
func TestPlaceLookups(t *testing.T) {
	predicted := func(rules int) float64 {
		text := "checks: off\nrules:\n"
		for i := range rules {
			text += fmt.Sprintf("  - {name: r%d, from: 10.0.%d.%d, proto: udp, port: %d, then: drop}\n", i, i>>8, i&255, 1000+2*i)
		}
		mix := cost.Mix{Seconds: 1, Arrived: 1_000_000, Forwarded: 1_000_000}
		return place(t, subject.Lower(t, text).Program, plan.TargetNftables, mix).Costs.Predicted.PerPacket
	}
	if few, many := predicted(8), predicted(500); many > 1.5*few {
		t.Errorf("500 rules are predicted to cost %.1f ns a packet, 8 rules %.1f", many, few)
	}
}
