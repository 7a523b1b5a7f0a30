// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"

	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// mendRulesets puts all rulesets of the policy in force.
func (t *transaction) mendRulesets(ctx context.Context) error {
	var errs []error
	for _, p := range t.manifest.Rulesets {
		errs = append(errs, t.mendRuleset(ctx, p))
	}
	return errors.Join(errs...)
}

// cleanStandIns removes the stand-ins and the rulesets of the previous policy that the stand-ins replaced.
func (t *transaction) cleanStandIns(ctx context.Context) error {
	var errs []error
	for _, p := range t.manifest.StandIn {
		errs = append(errs, t.in.clean(ctx, p.Kind))
	}
	return errors.Join(errs...)
}

// mendRuleset puts one ruleset in force, and removes other rulesets of its kind.
func (t *transaction) mendRuleset(ctx context.Context, p *netfilter.Ruleset) error {
	tool, err := t.live.Tool(ctx, p.Kind)
	if err != nil {
		return err
	}
	_, state, err := tool.Trial(ctx, p.Name)
	if err != nil || state == netfilter.Absent && !t.restore {
		return err
	}
	if state == netfilter.OnTrial { // XDP is already confirmed
		if err := tool.Keep(ctx, p.Name); err != nil {
			return err
		}
	}
	if state.Decides() {
		_, err := tool.Clean(ctx, t.in.prefixOf(p.Kind), p.Name)
		return err
	}
	other, err := t.otherRuleset(ctx, tool, p)
	if err != nil {
		return err
	}
	bans, err := t.live.BansFor(ctx, t.now, t.now)
	if err != nil {
		return err
	}
	if err := t.refill(t.now, p, bans); err != nil {
		return err
	}
	if _, err := tool.Clean(ctx, t.in.prefixOf(p.Kind), keepOf(other)...); err != nil {
		return err
	}
	return exceptRemains(tool.Load(ctx, p, other, netfilter.Loading{}))
}

// exceptRemains returns nil for a *netfilter.RemainsError, because the next change removes the remains. It returns any other error unchanged.
func exceptRemains(err error) error {
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

// otherRuleset returns the name of another ruleset of the same kind that decides although it should not. It returns "" if there is none.
func (t *transaction) otherRuleset(ctx context.Context, tool netfilter.Tool, p *netfilter.Ruleset) (string, error) {
	names, err := tool.Leftovers(ctx, t.in.prefixOf(p.Kind), p.Name)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		_, state, err := tool.Trial(ctx, name)
		if err != nil {
			return "", err
		}
		if state == netfilter.Settled || state == netfilter.Returned || state == netfilter.Aside {
			return name, nil
		}
	}
	return "", nil
}
