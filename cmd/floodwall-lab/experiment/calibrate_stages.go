// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
)

// The flows of a calibration: one to a routed destination, and one to the router itself.
var (
	forwardedFrom = netip.MustParseAddr("198.51.100.1")
	forwardedTo   = netip.MustParseAddr("203.0.113.1")
	forwardedFlow = flowTo(forwardedTo)
	localFlow     = flowTo(rig.Server4)
)

func flowTo(to netip.Addr) lab.Flow {
	return lab.Flow{From: lab.Addr(forwardedFrom), To: lab.Addr(to), SPort: lab.Port(4000), DPort: lab.Port(5001), Size: 14 + 128}
}

// stageProbes are the probes of a stage. Each is a policy whose rules all run at this stage. Every probe except drop passes the forwarded packets.
type stageProbes struct {
	target, stage string

	base   *rig.Probe // without the stage
	one    *rig.Probe // one rule
	many   *rig.Probe // one rule and manyRules more
	sets   *rig.Probe // one rule and manySets with a set
	locals *rig.Probe // one rule and manyLocals that test whether an address is the host's own; nil if the stage cannot test that
	limits *rig.Probe // one rule and manyLimits with a limit
	drop   *rig.Probe // one rule that drops all
}

// The numbers of rules of each kind. The cost of one rule is the cost of all of them divided by their number. So the noise is also divided by this
// number. In nftables, several rules make the chain start with a test of the device, which a single rule does not need. With limits the chain always
// has this test. So a part of the test is in the cost of a limit.
const (
	manyRules  = 7
	manySets   = 7
	manyLocals = 7
	manyLimits = 5
)

func (p *stageProbes) all() []*rig.Probe {
	all := []*rig.Probe{p.one, p.many, p.sets, p.limits, p.drop}
	if p.locals != nil {
		all = append(all, p.locals)
	}
	return all
}

// install installs the policies, each at a router of its own.
func (c *calibration) install(ctx context.Context, p *stageProbes) (err error) {
	for _, policy := range []struct {
		probe **rig.Probe
		label string
		rules string
		flow  lab.Flow
	}{
		{&p.one, "a rule", plainRules(1), forwardedFlow},
		{&p.many, "rules", plainRules(1 + manyRules), forwardedFlow},
		{&p.sets, "sets", plainRules(1) + setRules(manySets), forwardedFlow},
		{&p.locals, "own addresses", plainRules(1) + localRules(manyLocals), forwardedFlow},
		{&p.limits, "limits", plainRules(1) + limitRules(manyLimits), forwardedFlow},
		{&p.drop, "drop", dropped, localFlow},
	} {
		if p.stage == "ingress" && policy.probe == &p.locals {
			continue // nftables cannot test that at this stage
		}
		label := fmt.Sprintf("%s at %s: %s", p.target, p.stage, policy.label)
		c.Steps.Show("installing %s", label)
		s, err := c.apply(ctx, p.target, p.stage, policy.rules)
		if err != nil {
			return fmt.Errorf("%s: %w", policy.label, err)
		}
		*policy.probe = &rig.Probe{Label: label, Subject: s, Flows: []lab.Flow{policy.flow}}
	}
	return nil
}

// apply applies a policy at a router. All policies on XDP share one router. Each of their programs is attached only while it is measured.
func (c *calibration) apply(ctx context.Context, target, stage, rules string) (s rig.Subject, err error) {
	text := policyAt(stage, rules)
	if err := allAt(text, target, stage); err != nil {
		return s, err
	}
	if target != "xdp" {
		if s.Site, err = c.router(ctx, rig.DefaultRoute); err != nil {
			return s, err
		}
		return s, c.Guard(ctx, s.Site, rig.Floodwall(target, text))
	}
	if c.XDP == nil {
		if c.XDP, err = c.router(ctx, rig.DefaultRoute); err != nil {
			return s, err
		}
	}
	a, err := c.XDP.Apply(ctx, text, nil)
	if err != nil {
		return s, err
	}
	return rig.Subject{Site: c.XDP, Program: c.Own(a.Program)}, nil
}

// policyAt returns a policy whose rules run at a stage. It has no devices.
func policyAt(stage, rules string) string {
	return "default: pass\nchecks: off\nplacement: " + stage + "\n" + setsOfRules() + "rules:\n" + rules
}

// allAt returns an error if a rule of a policy would run at another stage. Otherwise the measurement would be wrong.
func allAt(text, target, stage string) error {
	c, err := control.CompileSource("calibration", []byte("devices: [any]\n"+text))
	if err != nil {
		return err
	}
	plan, err := c.Plan(plan.Target(target))
	if err != nil {
		return err
	}
	for i, place := range plan.Rules {
		if string(place.Stage) != stage {
			return fmt.Errorf("rule %q runs at %s, not at %s", plan.Program.Rules[i].Name, place.Stage, stage)
		}
	}
	return nil
}

// dropped is a rule that drops both flows.
var dropped = fmt.Sprintf("  - {name: drop, from: %s, then: drop}\n", forwardedFrom)

// plainRules returns n rules that do not match. No two of them can be merged.
func plainRules(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "  - {name: plain%d, from: 10.%d.0.0/16, to: 172.16.%d.0/24, then: drop}\n", i, 100+i, i)
	}
	return b.String()
}

// alternating returns the verdict of rule number i in a series of rules that match more and more packets. Each rule reverses a part of the effect of
// the rules after it, so they cannot be merged. With an odd number of rules, the last one drops, so that the rules before it have an effect.
func alternating(i int) string { return report.Choice(i%2 == 0, "drop", "pass") }

// setRules returns n rules with a set each. The source of the packets is in none of the sets.
func setRules(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "  - {name: set%d, from: $set%d, then: %s}\n", i, i, alternating(i))
	}
	return b.String()
}

// setPrefixes is the number of prefixes in the smallest set. It is too large for a generator to write the prefixes into a rule.
const setPrefixes = 100

// setsOfRules returns the sets for setRules. Each set contains the set before it.
func setsOfRules() string {
	var b strings.Builder
	b.WriteString("sets:\n")
	for i := range manySets {
		fmt.Fprintf(&b, "  set%d: [", i)
		for j := range setPrefixes + i {
			fmt.Fprintf(&b, "%s100.64.%d.0/24", report.Choice(j > 0, ", ", ""), 2*j)
		}
		b.WriteString("]\n")
	}
	return b.String()
}

// localRules returns n rules that would match the forwarded flow if its source were an address of the host.
func localRules(n int) string {
	var b strings.Builder
	for i := range n {
		to, _ := forwardedTo.Prefix(24 - i)
		fmt.Fprintf(&b, "  - {name: local%d, from: local, to: %s, then: %s}\n", i, to, alternating(i))
	}
	return b.String()
}

// limitRules returns n rules with a limit that the forwarded flow does not exceed. The flow comes in short bursts. iptables accepts no larger limits
// than these.
func limitRules(n int) string {
	var b strings.Builder
	for i := range n {
		to, _ := forwardedTo.Prefix(24 - i)
		fmt.Fprintf(&b, "  - {name: limit%d, to: %s, over: {rate: 1000000/s, burst: 1000000}, then: drop}\n", i, to)
	}
	return b.String()
}
