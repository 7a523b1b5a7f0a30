// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/compile/nftables"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/subject"
)

// TestProtectionRefused checks the errors for policies in which a protection cannot run at the required stage.
func TestProtectionRefused(t *testing.T) {
	for _, test := range []struct{ policy, key, cause string }{
		{`
rules: [{name: fresh, state: invalid, then: drop}]
services: [{name: web, port: tcp/80, syn: {mode: router}}]`, "syn", "behind rule \"fresh\""},
		{`
services:
  - {name: some, port: tcp/80, from: 192.0.2.1, track: false}
  - {name: web, port: tcp/80, syn: {mode: router}}`, "track: false", "works by conntrack"},
		{`
untracked: all
services: [{name: web, port: tcp/80, syn: {mode: router}}]`, "untracked", "`untracked` is all"},
		{`
untracked: [loopback, {from: 192.0.2.1}]
services: [{name: web, port: tcp/80, syn: {mode: router}}]`, "untracked", "`untracked` has from=192.0.2.1"},
	} {
		for _, target := range []plan.Target{plan.TargetXDP, plan.TargetNftables, plan.TargetIptables} {
			program, _ := plan.For(subject.Lower(t, test.policy).Optimized().Program, target)
			_, err := plan.Hoist(program, target)
			var place *plan.StageError
			if !errors.As(err, &place) || place.Key != test.key || !strings.Contains(place.Cause, test.cause) {
				t.Errorf("%s: %s\ngot %v", target, test.policy, err)
			}
		}
	}
}

// TestExemptBesideProxy checks a policy that protects one service and exempts the traffic of another from conntrack.
func TestExemptBesideProxy(t *testing.T) {
	p := subject.Lower(t, `
untracked: [loopback, multicast, {proto: ospf}, {from: 192.0.2.1, port: tcp/179}]
services: [{name: web, port: tcp/80, syn: {mode: router}}]`).Optimized().Program
	for _, target := range []plan.Target{plan.TargetXDP, plan.TargetNftables, plan.TargetIptables} {
		program, _ := plan.For(p, target)
		if _, err := plan.Hoist(program, target); err != nil {
			t.Errorf("%s: %v", target, err)
		}
	}
}

// TestForStays checks that plan.For does not change a program that already fits the target.
func TestForStays(t *testing.T) {
	p := subject.Lower(t, `
services:
  - {name: web, port: tcp/80, syn: {mode: router}}
  - {name: ssh, port: tcp/22, syn: {mode: host}}`).Optimized().Program
	if same, notes := plan.For(p, plan.TargetXDP); same != p || notes != nil {
		t.Errorf("for XDP: %v", notes)
	}
	once, notes := plan.For(p, plan.TargetNftables)
	twice, _ := plan.For(once, plan.TargetNftables)
	if diff := cmp.Diff(once.String(), twice.String()); diff != "" || len(notes) != 2 {
		t.Errorf("%d notes, and twice is not once:\n%s", len(notes), diff)
	}
}

// TestBesideXDP checks that the table that runs after XDP exempts no SYN from conntrack.
func TestBesideXDP(t *testing.T) {
	p := subject.Lower(t, `services: [{name: web, port: tcp/80, syn: {mode: router}}]`).Optimized().Program
	pl, err := plan.Hoist(p, plan.TargetXDP)
	if err != nil || !pl.Later() {
		t.Fatalf("nothing stands behind XDP: %v", err)
	}
	protect := []ir.Handshake{{Method: ir.MethodRouter, MSS: [2]uint16{900, 900}, WScale: 3, Options: ir.WindowScaling | ir.Timestamps}}
	n, err := nftables.Generate(pl, nftables.Options{Devices: []string{"eth0"}, Protect: protect})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(n.Script, "notrack") || !strings.Contains(n.Script, "synproxy mss 900 wscale 3 timestamp\n") {
		t.Errorf("%s", n.Script)
	}
}
