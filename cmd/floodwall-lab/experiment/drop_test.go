// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"testing"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// compiled returns the policy with n rules.
func compiled(t *testing.T, n int) *control.Compiled {
	t.Helper()
	c, err := control.CompileSource("policy.yaml", []byte("devices: [eth0]\n"+rig.RulesPolicy(n)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The compiler must neither merge the rules nor remove any, and the flood must pass all of them.
func TestRulesStayAsTheyAre(t *testing.T) {
	without := len(compiled(t, 0).Program.Rules)
	for _, n := range []int{1, 20, 500, 10_000} {
		c := compiled(t, n)
		if got := len(c.Program.Rules) - without; got != n {
			t.Errorf("%d rules became %d", n, got)
		}
		for _, from := range append(rig.RandomHosts(100).Listed, rig.RandomPrefixes(100).Listed...) {
			spec, err := packet.Parse(rig.FloodPacket(from))
			if err != nil {
				t.Fatal(err)
			}
			if e, err := c.Explain(spec, plan.TargetXDP); err != nil || e.Verdict != "drop" || e.Reason != "default" {
				t.Fatalf("%d rules: %s: %s by %s", n, rig.FloodPacket(from), e.Verdict, e.Reason)
			}
		}
	}
}
