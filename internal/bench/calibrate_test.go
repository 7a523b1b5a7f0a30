package bench

import (
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/floodwall/floodwall/internal/cost"
	"github.com/floodwall/floodwall/internal/testutil"
)

// TestStageCost takes figures apart that were put together from known costs, and noise in every round but some.
func TestStageCost(t *testing.T) {
	want := stageCost{cost.Work{Hook: 30, Rule: 5, Set: 20, Limit: 50, Local: 40}, 200}
	noisy := func(ns float64) *probe { return at(ns+40, ns, ns+7, ns+3, ns, ns+90) }
	const base = 300
	p := &stageProbes{
		base: noisy(base), one: noisy(base + 35), many: noisy(base + 35 + manyRules*5), sets: noisy(base + 35 + manySets*25),
		locals: noisy(base + 35 + manyLocals*45), limits: noisy(base + 35 + manyLimits*55), drop: noisy(200 + 30 + 5),
	}
	if got := p.cost(allRounds); got != want {
		t.Errorf("costs are %+v, want %+v", got, want)
	}
	if even, odd := p.cost(evenRounds), p.cost(oddRounds); even != want || odd != want {
		t.Errorf("by halves of the rounds, costs are %+v and %+v, want %+v", even, odd, want)
	}
	p.one = noisy(base - 10)
	if got := p.cost(allRounds).positive(); got.Hook != 0 || got.Rule <= 0 {
		t.Errorf("a stage that seems to save time costs %+v", got)
	}
}

// TestCalibrate measures all that there is, in a minute.
func TestCalibrate(t *testing.T) {
	testutil.RequireRoot(t)
	if os.Getenv("FLOODWALL_LONG") == "" {
		t.Skip("set FLOODWALL_LONG=1: TestExperiments/placement calibrates as well, but for iptables")
	}
	before := look(t)
	c, err := Calibrate(t.Context(), tiny(t))
	if err != nil {
		t.Fatal(err)
	}
	if left := before.leftovers(t, 0); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	stages := []string{"iptables/filter", "iptables/raw", "nftables/filter", "nftables/ingress", "nftables/raw", "xdp/xdp"}
	if got := slices.Sorted(maps.Keys(c.Model.Work)); !slices.Equal(got, stages) {
		t.Errorf("work is known at %v, want %v", got, stages)
	}
	state := t.TempDir()
	if err := c.Model.Write(state); err != nil {
		t.Fatal(err)
	}
	if _, err := cost.Read(state, c.Model.Host); err != nil {
		t.Errorf("what was written is refused: %v", err)
	}
}
