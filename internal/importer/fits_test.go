package importer_test

import (
	"context"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/importer"
)

// TestRejectBehindOwnAddresses has rules of FORWARD that reject, and ask for a state, behind rules of INPUT, which the policy
// asks about the host's own addresses. Every target takes the policy.
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

// TestAllAtFilter has a limit of what a chain passes before a rule that needs conntrack: the two cannot be parted, as the packets
// would be charged twice, so all rules run at filter, and the notes say why.
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

// TestUnfit has rules that no host with XDP can have: the result says why, and so does the head of the policy.
func TestUnfit(t *testing.T) {
	r, err := importer.Import(context.Background(), []importer.Source{rules("ACCEPT", "INPUT -f -d 192.0.2.9 -j DROP")}, importer.Options{Format: importer.Iptables, Devices: []string{"a-name-of-16-byte"}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Unfit == "" || !strings.Contains(r.Policy, "# CHECK REFUSES IT: ") {
		t.Errorf("unfit %q\n%s", r.Unfit, r.Policy)
	}
}
