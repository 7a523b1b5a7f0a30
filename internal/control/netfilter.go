package control

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/codegen/iptables"
	netfiltergen "github.com/floodwall/floodwall/internal/codegen/netfilter"
	"github.com/floodwall/floodwall/internal/codegen/nftables"
	"github.com/floodwall/floodwall/internal/netfilter"
	"github.com/floodwall/floodwall/internal/plan"
)

// netfilter compiles what is for netfilter, and finds the tool for it.
func (l *loaded) netfilter(ctx context.Context) error {
	name, err := l.freeName()
	if err != nil {
		return err
	}
	left, err := l.compileRuleset(ctx, name)
	if err != nil {
		return err
	}
	if l.ruleset != nil {
		l.ruleset.fill = l.ruleset.bansOf(l.kept)
		l.manifest.Rulesets = []*ruleset{l.ruleset}
		if _, err := findTool(ctx, l.ruleset.Kind); err != nil {
			return l.lacking(err)
		}
	}
	if l.options.Confirm > 0 || l.programs() {
		l.standIn(name)
	}
	return l.leave(left)
}

// compileRuleset makes the ruleset of the target, if there is anything for it to do.
func (l *loaded) compileRuleset(ctx context.Context, name string) ([]netfiltergen.Left, error) {
	k := kindNft
	if l.target == plan.TargetIptables {
		k = kindIptables
	}
	counts, err := l.countsBefore(ctx, k)
	if err != nil {
		return nil, err
	}
	if k == kindIptables {
		x, err := iptables.Generate(l.stages, iptables.Options{Name: name, Devices: l.devices(), Counts: counts, Protect: l.found})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.compiled.Policy.File, err)
		}
		l.ruleset = iptablesRuleset(l.compiled, x, name)
		return x.Left, nil
	}
	n, err := nftables.Generate(l.stages, nftables.Options{Table: name, Devices: l.devices(), Counts: counts, Protect: l.found})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.compiled.Policy.File, err)
	}
	if !n.Empty() || l.target == plan.TargetNftables {
		l.ruleset = nftRuleset(l.compiled, n)
	}
	return n.Left, nil
}

// freeName is a name that no generation's ruleset has: those that decide, rest, or wait for a rollback.
func (l *loaded) freeName() (string, error) {
	texts, err := l.running.state.Manifests()
	if err != nil {
		return "", err
	}
	var manifests []*manifest
	for _, t := range texts {
		m, err := readManifest(t.Number, t.Text)
		if err != nil {
			return "", err
		}
		manifests = append(manifests, m)
	}
	return l.in.nextName(manifests), nil
}

// lacking explains that a tool is missing: which rule needs it when XDP does the rest.
func (l *loaded) lacking(err error) error {
	if l.target != plan.TargetXDP {
		return &unavailableError{err}
	}
	for i, place := range l.stages.Rules {
		if place.Stage != plan.StageXDP {
			r := l.compiled.Program.Rules[i]
			return &unavailableError{fmt.Errorf("rule %q (line %d) runs at %s (%s): %w", r.Name, r.Line, place.Stage, place.Why, err)}
		}
	}
	return &unavailableError{fmt.Errorf("services that are not tracked: %w", err)}
}

// standIn adds rulesets that decide nothing, in place of those that rest during the trial.
func (l *loaded) standIn(name string) {
	if l.running.live == nil || l.running.live.base() == nil {
		return
	}
	for _, old := range l.running.live.base().manifest.Rulesets {
		if l.manifest.rulesetOf(old.Kind) == nil {
			l.manifest.StandIn = append(l.manifest.StandIn, standIn(old, name))
		}
	}
}

// leave deals with checks that the target does not do: one that the policy names is an error, those of a profile are a
// note.
func (l *loaded) leave(left []netfiltergen.Left) error {
	var errs []error
	var names []string
	for _, check := range left {
		if l.compiled.Policy.Named.Has(check.Check) {
			errs = append(errs, &LeftError{l.compiled.Policy.File, l.target, check})
			continue
		}
		if (l.compiled.Policy.Checks | l.compiled.Policy.Observed).Has(check.Check) { // others are structural: where they are left, nothing rests on them
			names = append(names, check.Check.String())
		}
	}
	if names != nil {
		l.notes = append(l.notes, fmt.Sprintf("%s does not do the checks %s; `floodwall compile --target %s` says why, and target xdp does them",
			l.target, strings.Join(names, ", "), l.target))
	}
	return errors.Join(errs...)
}

// LeftError says that a target does not do a check that the policy switches on by name.
type LeftError struct {
	File   string
	Target plan.Target
	Left   netfiltergen.Left
}

func (e *LeftError) Error() string {
	return fmt.Sprintf("%s: check %q: %s cannot do it: %s", e.File, e.Left.Check, e.Target, e.Left.Why)
}

// Hint is the remedy.
func (e *LeftError) Hint() string { return "use --target xdp, or switch the check off" }

// countsBefore says what the counters of rules that stay have counted, by their names in netfilter. What it has told is
// in a.began.
func (l *loaded) countsBefore(ctx context.Context, k kind) (func(string) (uint64, uint64), error) {
	if l.running.live == nil || l.running.generation.manifest.rulesetOf(k) == nil {
		return nil, nil
	}
	was, err := l.running.live.tallies(ctx, l.running.generation)
	if err != nil {
		return nil, err
	}
	l.began = seeds{}
	counts := was.stay(l.manifest)
	return func(name string) (uint64, uint64) {
		l.began[name] = counts[name]
		n := counts[name].inPackets()
		return n.Packets, n.Octets
	}, nil
}

// keepBans reads what the dynamic sets hold now. From one XDP program to the next they are copied without a list.
func (l *loaded) keepBans(ctx context.Context) error {
	l.kept = map[string][]Blocked{}
	l.loadBans()
	if l.running.live == nil || l.running.foreign != nil || l.target == plan.TargetXDP && l.running.generation.program != nil && !l.stages.Later() {
		return nil
	}
	for _, s := range l.compiled.Program.Sets {
		was, ok := l.running.generation.manifest.set(s.Name)
		if !dynamicByName(&s) || !ok || was.Dynamic < 0 {
			continue
		}
		list, err := l.running.live.entries(ctx, l.running.generation, was)
		if err != nil {
			return err
		}
		if list = mostOf(list, s.Max); len(list) > s.Max {
			return fmt.Errorf("%s: set %q cannot take over the %d entries it has now: raise its max above %d",
				l.compiled.Policy.File, s.Name, len(list), s.Max)
		}
		l.kept[s.Name] = list
		if l.target != plan.TargetXDP {
			l.bans += len(list)
		}
	}
	return nil
}

// bansOf are the entries that the sets of a ruleset begin with, by the set of netfilter.
func (p *ruleset) bansOf(kept map[string][]Blocked) map[string][]netfilter.Element {
	out := map[string][]netfilter.Element{}
	for name, set := range p.Sets {
		for _, b := range kept[name] {
			e := netfilter.Element{Prefix: b.Prefix, Timeout: forever, Comment: b.Why}
			if b.Expires != nil {
				e.Timeout = time.Duration(*b.Expires * float64(time.Second))
			}
			out[set.of(b.Prefix)] = append(out[set.of(b.Prefix)], e)
		}
	}
	return out
}
