// SPDX-License-Identifier: Apache-2.0

package importer_test

import (
	"context"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/importer"
)

// TestRejectBehindOwnAddresses has rules of FORWARD that reject and that test a state, after rules of INPUT, for which the policy
// tests the host's own addresses. Every target must accept the policy.
func TestRejectBehindOwnAddresses(t *testing.T) {
	const text = `*filter
:INPUT DROP [0:0]
:FORWARD ACCEPT [0:0]
-A INPUT -p tcp --dport 22 -j ACCEPT
-A FORWARD -d 10.9.0.0/24 -j REJECT
-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -p tcp -j DROP
COMMIT
`
	r := imported(t, importer.Iptables, importer.Source{Name: "f", Data: []byte(text)})
	if r.Unfit != "" || len(r.Lost) > 0 {
		t.Errorf("unfit %q, lost %v", r.Unfit, r.Lost)
	}
	for _, target := range []plan.Target{plan.TargetXDP, plan.TargetNftables, plan.TargetIptables} {
		p := lower(t, r)
		optimized, _ := compile.Optimize(p)
		if _, err := compile.Compile(optimized, target, []string{"fw0"}); err != nil {
			t.Errorf("%s: %v\n%s", target, err, r.Policy)
		}
	}
}

// TestAllAtFilter has a limit on the packets that a chain passes, before a rule that needs conntrack. The limit and the rule cannot run at different
// stages, because the limit would count the packets twice. So all rules must run at filter, and the notes must give this reason.
func TestAllAtFilter(t *testing.T) {
	r := imported(t, importer.Iptables, rules("DROP",
		"INPUT -p tcp --dport 80 -m hashlimit --hashlimit-above 20/s --hashlimit-mode srcip --hashlimit-name a -j DROP",
		"INPUT -p tcp -d 192.0.2.9 -m hashlimit --hashlimit-above 20/s --hashlimit-mode srcip --hashlimit-name b -j ACCEPT",
		"INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT"))
	if r.Unfit != "" || !strings.Contains(r.Policy, "\nplacement: filter") {
		t.Fatalf("unfit %q\n%s", r.Unfit, r.Policy)
	}
	said := false
	for _, n := range r.Notes {
		said = said || strings.Contains(n.Why, "all rules run at filter, behind XDP: ")
	}
	if !said {
		t.Errorf("notes %v", r.Notes)
	}
}

// TestUnfit has rules that no host with XDP can run. The result and the head of the policy must say why.
func TestUnfit(t *testing.T) {
	r, err := importer.Import(context.Background(), []importer.Source{rules("ACCEPT", "INPUT -f -d 192.0.2.9 -j DROP")}, importer.Options{Format: importer.Iptables, Devices: []string{"a-name-of-16-byte"}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Unfit == "" || !strings.Contains(r.Policy, "# CHECK REFUSES IT: ") {
		t.Errorf("unfit %q\n%s", r.Unfit, r.Policy)
	}
}
