// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
)

// TestDivided checks rules that wait for conntrack, followed by rules or a default that drop packets. At filter, only packets that the waiting rules
// can match may be dropped.
func TestDivided(t *testing.T) {
	const many, drop = "over: {connections: 20, per: from}, then: drop}", "default: drop\nreplies: drop\nrules: "
	for _, tt := range []struct {
		what, text   string
		target       plan.Target
		rules, where string // the stages of the policy's own rules, and of the default
	}{
		{"one port", drop + "[{name: many, port: tcp/22, " + many + "]\nservices: [{name: ssh, port: tcp/22}, {name: web, port: tcp/80}]",
			plan.TargetXDP, "filter, filter, xdp", "xdp and filter"},
		{"nftables", drop + "[{name: many, port: tcp/22, " + many + "]\nservices: [{name: ssh, port: tcp/22}, {name: web, port: tcp/80}]",
			plan.TargetNftables, "filter, filter, ingress", "ingress and filter"},
		{"iptables", drop + "[{name: many, port: tcp/22, " + many + "]\nservices: [{name: ssh, port: tcp/22}, {name: web, port: tcp/80}]",
			plan.TargetIptables, "filter, filter, raw", "raw and filter"},
		{"a second port", drop + "[{name: a, port: tcp/22, " + many + ", {name: b, port: udp/53, " + many + "]\nservices: [{name: s, port: [tcp/22, udp/53]}]",
			plan.TargetXDP, "filter, filter, filter", "xdp and filter"},
		{"any port", drop + "[{name: many, " + many + "]\nservices: [{name: web, port: tcp/80}]", plan.TargetXDP, "filter, filter", "xdp and filter"},
		{"icmp", drop + "[{name: many, proto: icmp, " + many + ", {name: pings, proto: icmp, then: pass}]", plan.TargetXDP, "filter, filter", "xdp and filter"},
		{"rules behind", drop + "[{name: known, port: tcp/22, state: established, then: pass}, {name: bad, from: 198.51.100.0/24, then: drop}, {name: web, port: tcp/80, then: pass}]",
			plan.TargetXDP, "filter, xdp and filter, xdp", "xdp and filter"},
		{"a limit of connections before what drops anyway", drop + "[{name: many, port: tcp/22, " + many + ", {name: bad, from: 198.51.100.0/24, then: drop}]",
			plan.TargetXDP, "filter, xdp", "xdp"},
		{"a rule behind passes what waits", drop + "[{name: known, port: tcp/22, state: established, then: pass}, {name: bad, from: 198.51.100.0/24, then: drop}, {name: all, proto: tcp, then: pass}]",
			plan.TargetXDP, "filter, xdp and filter, filter", "xdp and filter"},
		{"track", "default: drop\nservices: [{name: ssh, port: tcp/22, track: true}, {name: web, port: tcp/80}]",
			plan.TargetXDP, "filter, filter, filter, xdp, xdp, xdp", "xdp and filter"},
		{"any state", drop + "[{name: known, state: established, then: pass}, {name: web, port: tcp/80, then: pass}]", plan.TargetXDP, "filter, xdp", "filter"},
	} {
		s := subject.Lower(t, tt.text)
		pl, err := plan.Hoist(s.Program, tt.target)
		if err != nil {
			t.Fatalf("%s: %v", tt.what, err)
		}
		var got []string
		for i, p := range pl.Rules {
			if !strings.HasPrefix(s.Program.Rules[i].Name, "essential:") {
				got = append(got, p.Stages())
			}
		}
		if rules := strings.Join(got, ", "); rules != tt.rules || pl.Default.Stages() != tt.where {
			t.Errorf("%s:\n got %s, default %s\nwant %s, default %s\n%s", tt.what, rules, pl.Default.Stages(), tt.rules, tt.where, placements(pl))
		}
		if notes := plan.LateNotes(pl); (len(notes) > 0) != (tt.where == "filter") {
			t.Errorf("%s: notes %q", tt.what, notes)
		}
	}
}

// TestStageFor checks the stage at which a divided default decides a packet. It must treat fragments and IPv6 headers in the same way as the earlier
// stage.
func TestStageFor(t *testing.T) {
	s := subject.Lower(t, "default: drop\nrules: [{name: many, port: tcp/22, over: {connections: 20, per: from}, then: drop}]\n"+
		"services: [{name: ssh, port: tcp/22, from: 203.0.113.0/24}]")
	pl, err := plan.Hoist(s.Program, plan.TargetXDP)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]plan.Stage{
		"udp 198.51.100.1:5 > 192.0.2.1:9999":              plan.StageXDP,
		"tcp 198.51.100.1:5 > 192.0.2.1:23 S":              plan.StageXDP,
		"udp 198.51.100.1:5 > 192.0.2.1:22":                plan.StageXDP,
		"tcp 203.0.113.1:5 > 192.0.2.1:22 S":               plan.StageFilter,
		"tcp 203.0.113.1:5 > 192.0.2.1:22 S frag=later":    plan.StageXDP,
		"tcp [2001:db8::1]:5 > [2001:db8::2]:23 S ext=hbh": plan.StageXDP,
	} {
		spec, err := packet.Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		p := spec.Packet()
		if got := pl.StageForDefault(&p, ir.World{Member: s.Has}); got != want {
			t.Errorf("%s: at %s, want %s\n%s", text, got, want, placements(pl))
		}
	}
}
