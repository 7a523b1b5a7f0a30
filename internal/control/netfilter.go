package control

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/netfilter"
)

// netfilter compiles what is for netfilter, and finds the tool for it.
func (a *apply) netfilter(ctx context.Context) error {
	name, err := a.partName()
	if err != nil {
		return err
	}
	left, err := a.compilePart(ctx, name)
	if err != nil {
		return err
	}
	if a.part != nil {
		a.part.fill = a.part.bansOf(a.kept)
		a.manifest.Parts = []*part{a.part}
		if _, err := findTool(ctx, a.part.Kind); err != nil {
			return a.lacking(err)
		}
	}
	if a.options.Confirm > 0 || a.programs() {
		a.standIn(name)
	}
	return a.leave(left)
}

// compilePart makes the part of the target, if there is anything for it to do.
func (a *apply) compilePart(ctx context.Context, name string) ([]compile.Left, error) {
	k := kindNft
	if a.target == compile.TargetIptables {
		k = kindXt
	}
	counts, err := a.countsBefore(ctx, k)
	if err != nil {
		return nil, err
	}
	if k == kindXt {
		x, err := compile.ToIptables(a.stages, compile.IptOptions{Name: name, Devices: a.devices(), Counts: counts, Protect: a.found})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.compiled.Policy.File, err)
		}
		a.part = xtPart(a.compiled, x, name)
		return x.Left, nil
	}
	n, err := compile.ToNftables(a.stages, compile.NftOptions{Table: name, Devices: a.devices(), Counts: counts, Protect: a.found})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.compiled.Policy.File, err)
	}
	if !n.Empty() || a.target == compile.TargetNftables {
		a.part = nftPart(a.compiled, n)
	}
	return n.Left, nil
}

// partName is a name that no generation's part has: those that decide, rest, or wait for a rollback.
func (a *apply) partName() (string, error) {
	texts, err := a.state.Manifests()
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
	return a.in.nextPart(manifests), nil
}

// lacking explains that a tool is missing: which rule needs it when XDP does the rest.
func (a *apply) lacking(err error) error {
	if a.target != compile.TargetXDP {
		return &unavailableError{err}
	}
	for i, place := range a.stages.Rules {
		if place.Stage != compile.StageXDP {
			r := a.compiled.Program.Rules[i]
			return &unavailableError{fmt.Errorf("rule %q (line %d) runs at %s (%s): %w", r.Name, r.Line, place.Stage, place.Why, err)}
		}
	}
	return &unavailableError{fmt.Errorf("services that are not tracked: %w", err)}
}

// standIn adds parts that decide nothing, in place of those that rest during the trial.
func (a *apply) standIn(name string) {
	if a.live == nil || a.live.base() == nil {
		return
	}
	for _, old := range a.live.base().manifest.Parts {
		if a.manifest.partOf(old.Kind) == nil {
			a.manifest.StandIn = append(a.manifest.StandIn, standIn(old, name))
		}
	}
}

// leave deals with checks that the target does not do: one that the policy names is an error, those of a profile are a
// note.
func (a *apply) leave(left []compile.Left) error {
	var errs []error
	var names []string
	for _, l := range left {
		if a.compiled.Policy.Named.Has(l.Check) {
			errs = append(errs, &LeftError{a.compiled.Policy.File, a.target, l})
			continue
		}
		if (a.compiled.Policy.Checks | a.compiled.Policy.Observed).Has(l.Check) { // others are structural: where they are left, nothing rests on them
			names = append(names, l.Check.String())
		}
	}
	if names != nil {
		a.notes = append(a.notes, fmt.Sprintf("%s does not do the checks %s; `floodwall compile --target %s` says why, and target xdp does them",
			a.target, strings.Join(names, ", "), a.target))
	}
	return errors.Join(errs...)
}

// LeftError says that a target does not do a check that the policy switches on by name.
type LeftError struct {
	File   string
	Target compile.Target
	Left   compile.Left
}

func (e *LeftError) Error() string {
	return fmt.Sprintf("%s: check %q: %s cannot do it: %s", e.File, e.Left.Check, e.Target, e.Left.Why)
}

// Hint is the remedy.
func (e *LeftError) Hint() string { return "use --target xdp, or switch the check off" }

// countsBefore says what the counters of rules that stay have counted, by their names in netfilter. What it has told is
// in a.began.
func (a *apply) countsBefore(ctx context.Context, k kind) (func(string) (uint64, uint64), error) {
	if a.live == nil || a.before.manifest.partOf(k) == nil {
		return nil, nil
	}
	was, err := a.live.tallies(ctx, a.before)
	if err != nil {
		return nil, err
	}
	a.began = seeds{}
	counts := was.stay(a.manifest)
	return func(name string) (uint64, uint64) {
		a.began[name] = counts[name]
		n := counts[name].inPackets()
		return n.Packets, n.Octets
	}, nil
}

// keepBans reads what the dynamic sets hold now. From one XDP program to the next they are copied without a list.
func (a *apply) keepBans(ctx context.Context) error {
	a.kept = map[string][]Blocked{}
	a.loadBans()
	if a.live == nil || a.foreign != nil || a.target == compile.TargetXDP && a.before.program != nil && !a.stages.Later() {
		return nil
	}
	for _, s := range a.compiled.Program.Sets {
		was, ok := a.before.manifest.set(s.Name)
		if !dynamicByName(&s) || !ok || was.Dynamic < 0 {
			continue
		}
		list, err := a.live.entries(ctx, a.before, was)
		if err != nil {
			return err
		}
		if list = mostOf(list, s.Max); len(list) > s.Max {
			return fmt.Errorf("%s: set %q cannot take over the %d entries it has now: raise its max above %d",
				a.compiled.Policy.File, s.Name, len(list), s.Max)
		}
		a.kept[s.Name] = list
		if a.target != compile.TargetXDP {
			a.bans += len(list)
		}
	}
	return nil
}

// bansOf are the entries that the sets of a part begin with, by the set of netfilter.
func (p *part) bansOf(kept map[string][]Blocked) map[string][]netfilter.Element {
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
