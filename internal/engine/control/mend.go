package control

import (
	"context"
	"errors"

	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// mend completes or undoes the change of a command that died in between. XDP says which policy decides, and the rulesets in netfilter must
// be those of the same policy. During a trial everything is as it should be. A ruleset that is missing altogether was removed by another
// tool; it is put back only with restore.
func (l *live) mend(ctx context.Context, in Instance, restore bool) error {
	errs := []error{strictFor(l.State, l.Manifests()...)}
	if len(l.Generations) == 0 || l.Trial != nil {
		return errors.Join(errs...)
	}
	g := l.Generations[0]
	if g.Program == nil {
		errs = append(errs, l.State.Took(g.Number), l.State.Stands(g.Number))
	}
	errs = append(errs, l.State.Succeed(g.Number))
	for _, p := range g.Manifest.Rulesets {
		errs = append(errs, l.mendRuleset(ctx, in, g, p, restore))
	}
	errs = append(errs, in.mendTemporary(ctx, l, g, !restore))
	for _, p := range g.Manifest.StandIn { // it goes, with the ruleset of the policy before in whose place it was
		errs = append(errs, in.clean(ctx, p.Kind))
	}
	return errors.Join(errs...)
}

// mendRuleset puts a ruleset in force, and removes others of its kind.
func (l *live) mendRuleset(ctx context.Context, in Instance, g *generation.Generation, p *netfilter.Ruleset, restore bool) error {
	t, err := l.Tool(ctx, p.Kind)
	if err != nil {
		return err
	}
	_, state, err := t.Trial(ctx, p.Name)
	if err != nil || state == netfilter.Absent && !restore {
		return err
	}
	if state == netfilter.OnTrial { // XDP is confirmed
		if err := t.Keep(ctx, p.Name); err != nil {
			return err
		}
	}
	if state.Decides() {
		_, err := t.Clean(ctx, in.prefixOf(p.Kind), p.Name)
		return err
	}
	other, err := l.otherRuleset(ctx, in, t, p)
	if err != nil {
		return err
	}
	bans, err := l.BansFor(ctx, g, g)
	if err != nil {
		return err
	}
	if err := l.refill(g, p, bans); err != nil {
		return err
	}
	if _, err := t.Clean(ctx, in.prefixOf(p.Kind), keepOf(other)...); err != nil {
		return err
	}
	return confirmed(t.Load(ctx, p, other, netfilter.Loading{}))
}

// confirmed returns nil for the error that parts are left: the next change removes them.
func confirmed(err error) error {
	var left *netfilter.RemainsError
	if errors.As(err, &left) {
		return nil
	}
	return err
}

func keepOf(name string) []string {
	if name == "" {
		return nil
	}
	return []string{name}
}

// otherRuleset is a ruleset of the instance, of the same kind, that decides though it should not, or "".
func (l *live) otherRuleset(ctx context.Context, in Instance, t netfilter.Tool, p *netfilter.Ruleset) (string, error) {
	names, err := t.Leftovers(ctx, in.prefixOf(p.Kind), p.Name)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		_, state, err := t.Trial(ctx, name)
		if err != nil {
			return "", err
		}
		if state == netfilter.Settled || state == netfilter.Returned || state == netfilter.Aside {
			return name, nil
		}
	}
	return "", nil
}
