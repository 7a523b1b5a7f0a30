// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestProtectionNotes checks the notes of apply on host settings that affect the protection of a service.
func TestProtectionNotes(t *testing.T) {
	inRouter(t, func(s *site, _ *lab.Host) {
		apply := func(target plan.Target, service string, dry bool) (text string) {
			s.onRouter(func() error {
				p, err := policy.Parse("policy.yaml", []byte("{devices: [client], services: ["+service+"]}"))
				if err != nil {
					return err
				}
				applied, err := s.Apply(s.ctx, p, control.ApplyOptions{Target: target, DryRun: dry})
				if err == nil {
					text = strings.Join(applied.Notes, "\n")
				}
				return err
			})
			return text
		}
		notes := func(target plan.Target, service string) string { return apply(target, service, true) }
		says := func(when, text, words string, want bool) {
			t.Helper()
			if strings.Contains(text, words) != want {
				t.Errorf("%s: %q is said: %t, in\n%s", when, words, !want, text)
			}
		}
		const (
			web    = `{name: web, port: tcp/80, syn: {mode: router, backends: [10.0.1.2]}}`
			silent = `{name: web, port: tcp/81, syn: {mode: router, backends: [10.0.1.2, "fd01::2"]}}`
			here   = `{name: web, port: tcp/80, syn: {mode: host}}`
		)
		says("servers that are silent", notes(plan.TargetXDP, silent), "10.0.1.2:81, [fd01::2]:81 did not answer", true)
		says("servers that answer", notes(plan.TargetXDP, web), "did not answer", false)
		const keyed = `{name: bgp, port: tcp/80, syn: {mode: router, backends: [10.0.1.2], authenticated: 10/s}}`
		for target, lost := range map[plan.Target]bool{plan.TargetXDP: false, plan.TargetNftables: true, plan.TargetIptables: true} {
			says("keys on "+string(target), notes(target, web), `service "web": `+string(target)+" has no XDP: ", lost)
			says("keys on "+string(target), notes(target, web), "connections with TCP-AO or MD5 cannot begin", lost)
			says("keys of which the policy speaks on "+string(target), notes(target, keyed), "`authenticated` has no effect", lost)
			says("windows on "+string(target), notes(target, web), "without window scaling", target == plan.TargetIptables)
		}
		says("a million connections", notes(plan.TargetXDP, here), "MB in the kernel", false)
		for _, service := range []string{web, here} {
			says("no NAT", notes(plan.TargetXDP, service), "DNAT", false)
		}
		s.ruleset("add table ip nat; add chain ip nat pre { type nat hook prerouting priority -100; }")
		says("NAT without rules", notes(plan.TargetXDP, web), "DNAT", false)
		s.ruleset("add rule ip nat pre tcp dport 8080 dnat to 10.0.1.2:80")
		for _, service := range []string{web, here} {
			says("a published port", notes(plan.TargetXDP, service), "DNAT", true)
		}
		s.onRouter(func() error {
			detach, err := testutil.Occupy("client")
			t.Cleanup(func() { detach() })
			return err
		})
		says("a target for want of XDP", apply(control.TargetAuto, web, false), "without XDP: not xdp: ", true)
		defer s.unload()
		says("a target that is asked for", apply(plan.TargetNftables, web, false), "without XDP: not xdp: ", false)
	})
}

// ruleset runs nft commands on the router.
func (s *site) ruleset(commands string) {
	s.Helper()
	s.onRouter(func() error { return exec.Command("nft", commands).Run() })
}
