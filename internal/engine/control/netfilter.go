package control

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/iptables"
	"github.com/floodwall/floodwall/internal/compile/nftables"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
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
		l.ruleset.Fill = ban.Elements(l.ruleset, l.kept)
		l.ruleset.FillLive(l.compiled.Program)
		l.manifest.Rulesets = []*netfilter.Ruleset{l.ruleset}
		if _, err := netfilter.FindTool(ctx, l.ruleset.Kind); err != nil {
			return l.lacking(err)
		}
	}
	if l.options.Confirm > 0 || l.programs() {
		l.standIn(name)
	}
	return l.leave(left)
}

// compileRuleset makes the ruleset of the target, if there is anything for it to do.
func (l *loaded) compileRuleset(ctx context.Context, name string) ([]plan.LeftCheck, error) {
	k := netfilter.KindNft
	if l.target == plan.TargetIptables {
		k = netfilter.KindIptables
	}
	counts, err := l.countsBefore(ctx, k)
	if err != nil {
		return nil, err
	}
	if k == netfilter.KindIptables {
		x, err := iptables.Generate(l.stages, iptables.Options{Name: name, Devices: l.devices(), Counts: counts, Protect: l.found})
		if err != nil {
			return nil, inFile(l.compiled.Policy.File, err)
		}
		l.ruleset = netfilter.OfIptables(l.compiled.Program, x, name)
		return x.Left, nil
	}
	n, err := nftables.Generate(l.stages, nftables.Options{Table: name, Devices: l.devices(), Counts: counts, Protect: l.found})
	if err != nil {
		return nil, inFile(l.compiled.Policy.File, err)
	}
	if !n.Empty() || l.target == plan.TargetNftables {
		l.ruleset = netfilter.OfNftables(l.compiled.Program, n)
	}
	return n.Left, nil
}

// freeName is a name that no generation's ruleset has: those that decide, rest, or wait for a rollback.
func (l *loaded) freeName() (string, error) {
	manifests, err := manifestsIn(l.running.state)
	return l.in.nextName(manifests), err
}

// manifestsIn are those of all generations that a state has.
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
	if l.running.live == nil || l.running.live.Base() == nil {
		return
	}
	for _, old := range l.running.live.Base().Manifest.Rulesets {
		if l.manifest.RulesetOf(old.Kind) == nil {
			l.manifest.StandIn = append(l.manifest.StandIn, netfilter.StandIn(old, name))
		}
	}
}

// leave deals with checks that the target does not do: one that the policy names is an error, those of a profile are a
// note.
func (l *loaded) leave(left []plan.LeftCheck) error {
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
	Left   plan.LeftCheck
}

func (e *LeftError) Error() string {
	return fmt.Sprintf("%s: check %q: %s cannot do it: %s", e.File, e.Left.Check, e.Target, e.Left.Why)
}

// Hint is the remedy.
func (e *LeftError) Hint() string { return "use --target xdp, or switch the check off" }

// countsBefore says what the counters of rules that stay have counted, by their names in netfilter. What it has told is
// in a.began.
func (l *loaded) countsBefore(ctx context.Context, k netfilter.Kind) (func(string) (uint64, uint64), error) {
	if l.running.live == nil || l.running.generation.Manifest.RulesetOf(k) == nil {
		return nil, nil
	}
	was, err := l.running.live.Counts(ctx, l.running.generation)
	if err != nil {
		return nil, err
	}
	l.began = manifest.Seeds{}
	counts := was.Stay(l.manifest)
	return func(name string) (uint64, uint64) {
		l.began[name] = counts[name]
		n := counts[name].InPackets()
		return n.Packets, n.Bytes
	}, nil
}

// keepBans reads what the dynamic sets hold now. From one XDP program to the next they are copied without a list.
func (l *loaded) keepBans(ctx context.Context) error {
	l.kept = map[string][]ban.Blocked{}
	l.loadBans()
	if l.running.live == nil || l.running.foreign != nil || l.target == plan.TargetXDP && l.running.generation.Program != nil && !l.stages.Later() {
		return nil
	}
	for _, s := range l.compiled.Program.Sets {
		was, ok := l.running.generation.Manifest.Set(s.Name)
		if !netfilter.DynamicByName(&s) || !ok || was.Dynamic < 0 {
			continue
		}
		list, err := l.running.live.Entries(ctx, l.running.generation, was)
		if err != nil {
			return err
		}
		if list = ban.MostOf(list, s.Max); len(list) > s.Max {
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
