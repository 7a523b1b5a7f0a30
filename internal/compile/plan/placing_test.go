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

// anyPlan plans a program as one of the ways there are says.
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

// randomModel is a model in which nothing need be cheaper than anything.
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

// measured is a model with figures as on the machine of EXPERIMENTS: a router with a full table of routes.
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

// published is the policy of the article, which drops the packets of one source that are for the router itself.
const published = "checks: off\nrules: [{name: x, from: 198.51.100.1, to: local, proto: udp, port: 5001, then: drop}]\n"

// The article's tests: 280,000 packets a second for the router that are all dropped, and 155 million that are forwarded in
// ten minutes, while 58,604 are dropped.
var (
	attacked   = cost.Mix{Seconds: 600, Arrived: 168_000_000, Rules: map[string]uint64{"x": 168_000_000}}
	forwarding = cost.Mix{Seconds: 600, Arrived: 155_058_604, Forwarded: 155_000_000, Rules: map[string]uint64{"x": 58_604}}
)

// TestPlacements says where rules go that ask for a stage, by the policy or by themselves, and what is said of a stage that
// the target lacks.
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
			s.Program.Rules[0].Placement = "xdp" // said once more, of a rule
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

// TestDefaultPlaced has the default of a policy follow its placement when it drops: or no rule would have its packets.
func TestDefaultPlaced(t *testing.T) {
	for def, want := range map[string]plan.Stage{"drop": plan.StageFilter, "pass": plan.StageIngress} {
		s := subject.Lower(t, "placement: filter\ndefault: "+def)
		if pl, err := plan.Hoist(s.Program, plan.TargetNftables); err != nil || pl.Default.Stage != want {
			t.Errorf("default %s: at %v, %v, want %s", def, pl.Default, err, want)
		}
	}
}

// TestPlacePublished has the article's rule where the article's measurements want it, whatever it was that was observed.
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

// TestPlaceCrosses has the share of dropped packets grow: the rule moves once, to raw, and the cost that is predicted is
// never above that of either stage fixed.
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

// TestPlaceKeeps lists what Place must not move, though all is cheaper at filter.
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

// TestPlaceFragments has rules that drop later fragments. Where conntrack puts datagrams together, a rule before them that
// asks for ports decides some of these as a whole: then they stay where fragments are still apart.
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

// TestPlaceApart has two rules of which one drops a flood: only the other moves, and it comes back when the flood is its.
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

// TestPlaceMany places 5,000 rules, or 10,000 with FLOODWALL_LONG=1. Trying each by itself, or comparing each with each in every plan, would take minutes.
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

// TestPlaceLookups has the cost model see that rules in verdict maps cost together what a few do.
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
