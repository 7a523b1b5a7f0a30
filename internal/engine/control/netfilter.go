// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/iptables"
	"github.com/floodwall/floodwall/internal/compile/nftables"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// netfilter compiles the netfilter part of the policy, and finds the tool that loads it.
func (t *transaction) netfilter(ctx context.Context) error {
	name, err := t.freeName()
	if err != nil {
		return err
	}
	ruleset, left, err := t.compileRuleset(ctx, name)
	if err != nil {
		return err
	}
	if ruleset != nil {
		ruleset.Fill = ban.Elements(ruleset, t.kept)
		ruleset.FillLive(t.compiled.Program)
		t.manifest.Rulesets = []*netfilter.Ruleset{ruleset}
		tool, err := netfilter.FindTool(ctx, ruleset.Kind)
		if err != nil {
			return t.lacking(err)
		}
		if err := t.withoutIPv6(ruleset, tool.LacksIPv6()); err != nil {
			return err
		}
	}
	if t.options.Confirm > 0 || t.programs() {
		t.standIn(name)
	}
	return t.leave(left)
}

// withoutIPv6 restricts a ruleset to IPv4 if ip6tables does not work. It returns an error if a device has an IPv6 address that other hosts can reach.
// lacks says why ip6tables does not work, or is nil.
func (t *transaction) withoutIPv6(p *netfilter.Ruleset, lacks error) error {
	if lacks == nil || p.V6 == "" {
		return nil
	}
	for _, name := range t.devices() {
		device, err := net.InterfaceByName(name)
		if err != nil {
			continue
		}
		addresses, err := device.Addrs()
		if err != nil {
			return fmt.Errorf("addresses of device %s: %w", name, err)
		}
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is6() && p.Addr().IsGlobalUnicast() {
				return &unavailableError{wording.WithHint(fmt.Errorf("device %s has the address %s, which would not be filtered: %w", name, p.Addr(), lacks),
					"use --target nftables, mend ip6tables, or switch IPv6 off: sysctl net.ipv6.conf."+name+".disable_ipv6=1")}
			}
		}
	}
	p.Only4 = true
	t.note(fmt.Sprintf("IPv6 is not filtered: %v; no device of the policy has an IPv6 address that others can reach", lacks))
	return nil
}

// compileRuleset compiles the ruleset for the target. It returns nil if the policy has no rules in netfilter.
func (t *transaction) compileRuleset(ctx context.Context, name string) (*netfilter.Ruleset, []plan.LeftCheck, error) {
	k := netfilter.KindNft
	if t.target == plan.TargetIptables {
		k = netfilter.KindIptables
	}
	counts, err := t.countsBefore(ctx, k)
	if err != nil {
		return nil, nil, err
	}
	if k == netfilter.KindIptables {
		x, err := iptables.Generate(t.stages, iptables.Options{Name: name, Devices: t.devices(), Counts: counts, Protect: t.found})
		if err != nil {
			return nil, nil, inFile(t.compiled.Policy.File, err)
		}
		return netfilter.OfIptables(t.compiled.Program, x, name), x.Left, nil
	}
	n, err := nftables.Generate(t.stages, nftables.Options{Table: name, Devices: t.devices(), Counts: counts, Protect: t.found})
	if err != nil {
		return nil, nil, inFile(t.compiled.Policy.File, err)
	}
	if n.Empty() && t.target != plan.TargetNftables {
		return nil, n.Left, nil
	}
	return netfilter.OfNftables(t.compiled.Program, n), n.Left, nil
}

// freeName returns a name that no ruleset of any generation has. This includes rulesets that are inactive or wait for a rollback.
func (t *transaction) freeName() (string, error) {
	manifests, err := manifestsIn(t.state)
	return t.in.nextName(manifests), err
}

// manifestsIn returns the manifests of all generations in a state.
func manifestsIn(state *datapath.State) (manifests []*manifest.Manifest, err error) {
	texts, err := state.Manifests()
	if err != nil {
		return nil, err
	}
	for _, t := range texts {
		m, err := manifest.Read(t.Number, t.Text)
		if err != nil {
			return nil, err
		}
		manifests = append(manifests, m)
	}
	return manifests, nil
}

// lacking wraps the error that a netfilter tool is missing. If XDP does the rest of the policy, the error names the rule that needs the tool.
func (t *transaction) lacking(err error) error {
	if t.target != plan.TargetXDP {
		return &unavailableError{err}
	}
	for i, place := range t.stages.Rules {
		if place.Stage != plan.StageXDP {
			r := t.compiled.Program.Rules[i]
			return &unavailableError{fmt.Errorf("rule %q (line %d) runs at %s (%s): %w", r.Name, r.Line, place.Stage, place.Why, err)}
		}
	}
	return &unavailableError{fmt.Errorf("services that are not tracked: %w", err)}
}

// standIn adds rulesets that decide nothing. Each stands in for a ruleset of the base whose kind the new policy lacks. The base's ruleset is inactive
// during the trial.
func (t *transaction) standIn(name string) {
	if t.base == nil {
		return
	}
	for _, old := range t.base.Manifest.Rulesets {
		if t.manifest.RulesetOf(old.Kind) == nil {
			t.manifest.StandIn = append(t.manifest.StandIn, netfilter.StandIn(old, name))
		}
	}
}

// leave handles checks that the target does not support. If the policy names the check, this is an error. For checks of a profile there is a note.
func (t *transaction) leave(left []plan.LeftCheck) error {
	var errs []error
	var names []string
	for _, check := range left {
		if t.compiled.Policy.Named.Has(check.Check) {
			errs = append(errs, &LeftError{t.compiled.Policy.File, t.target, check})
			continue
		}
		if (t.compiled.Policy.Checks | t.compiled.Policy.Observed).Has(check.Check) { // the other checks are structural: nothing depends on them
			names = append(names, check.Check.String())
		}
	}
	if names != nil {
		t.note(fmt.Sprintf("%s does not do the checks %s; `floodwall compile --target %s` says why, and target xdp does them",
			t.target, strings.Join(names, ", "), t.target))
	}
	return errors.Join(errs...)
}

// LeftError says that a target does not support a check that the policy names.
type LeftError struct {
	File   string
	Target plan.Target
	Left   plan.LeftCheck
}

func (e *LeftError) Error() string {
	return fmt.Sprintf("%s: check %q: %s cannot do it: %s", e.File, e.Left.Check, e.Target, e.Left.Why)
}

// Hint is the remedy.
func (e *LeftError) Hint() string { return "use --target xdp, or switch the check off" }

// countsBefore returns a function that returns the initial value of a counter in netfilter, by the counter's name. The values are the counts of rules
// that stay in the policy. The function stores all values that it returns in t.began.
func (t *transaction) countsBefore(ctx context.Context, k netfilter.Kind) (func(string) (uint64, uint64), error) {
	if !t.runs() || t.now.Manifest.RulesetOf(k) == nil {
		return nil, nil
	}
	was, err := t.live.Counts(ctx, t.now)
	if err != nil {
		return nil, err
	}
	t.began = manifest.Seeds{}
	counts := was.Stay(t.manifest)
	return func(name string) (uint64, uint64) {
		t.began[name] = counts[name]
		n := counts[name].InPackets()
		return n.Packets, n.Bytes
	}, nil
}

// keepBans reads the present entries of the dynamic sets, to put them into the new sets. Between two XDP programs fillDynamic copies the entries
// directly.
func (t *transaction) keepBans(ctx context.Context) error {
	t.kept = map[string][]ban.Ban{}
	t.loadBans()
	if !t.runs() || t.foreign != nil || t.target == plan.TargetXDP && t.now.Program != nil && !t.stages.Later() {
		return nil
	}
	for _, s := range t.compiled.Program.Sets {
		was, ok := t.now.Manifest.Set(s.Name)
		if !netfilter.DynamicByName(&s) || !ok || was.Dynamic < 0 {
			continue
		}
		list, err := t.live.Entries(ctx, t.now, was)
		if err != nil {
			return err
		}
		if list = ban.MostOf(list, s.Max); len(list) > s.Max {
			return fmt.Errorf("%s: set %q cannot take over the %d entries it has now: raise its max above %d",
				t.compiled.Policy.File, s.Name, len(list), s.Max)
		}
		t.kept[s.Name] = list
		if t.target != plan.TargetXDP {
			t.bans += len(list)
		}
	}
	return nil
}
