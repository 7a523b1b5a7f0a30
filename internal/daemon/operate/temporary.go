// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/policy"
)

// Owners of temporary rules.
const (
	ByHand    = "hand"             // added by a person
	Automatic = manifest.Automatic // added by detect, with names such as auto-1
)

// TemporaryOrder is a rule to add before the rules of the policy, for a limited time.
type TemporaryOrder struct {
	Rule string `json:"rule"`           // one line, in the format of an entry of `rules` in a policy; the rule has a name
	For  string `json:"for"`            // such as 10m
	Name string `json:"name,omitempty"` // replaces the name in the rule
	Why  string `json:"why,omitempty"`
}

// Temporary returns the temporary rules that are in force, with their counters.
func (h Host) Temporary(ctx context.Context) (list []control.RuleStatus, err error) {
	s, err := h.Instance.Status(ctx)
	if err != nil {
		return nil, err
	}
	list = []control.RuleStatus{}
	for _, r := range s.Rules {
		if r.Temporary != nil && time.Now().Before(r.Temporary.Until) { // the kernel ends rules at their end; the next change of the rules removes them
			list = append(list, r)
		}
	}
	return list, nil
}

// AddTemporary adds a temporary rule for a person.
func (h Host) AddTemporary(ctx context.Context, o TemporaryOrder) (*manifest.Temporary, error) {
	d, err := policy.ParseDuration(o.For)
	if err != nil || d < time.Second || d > generation.Longest {
		return nil, &OrderError{fmt.Sprintf("for %q is not a time from 1s to 24h", o.For), "write it as 10m or 1h"}
	}
	t, err := generation.Parse(o.Rule, o.Name)
	if err != nil {
		return nil, err
	}
	if number, found := strings.CutPrefix(t.Name, Automatic+"-"); found && number != "" && strings.Trim(number, "0123456789") == "" {
		return nil, &OrderError{fmt.Sprintf("the name %q is kept for a rule of detect", t.Name), "give the rule another name"}
	}
	now := time.Now().UTC()
	t.Owner, t.Began, t.Until, t.Why = ByHand, now, now.Add(d).Truncate(time.Second), o.Why
	return &t, h.ChangeTemporaryOf(ctx, ByHand, func(own []manifest.Temporary) ([]manifest.Temporary, error) { return append(own, t), nil })
}

// RemoveTemporary removes temporary rules of any owner. If one of the names does not exist, it returns an error and removes nothing.
func (h Host) RemoveTemporary(ctx context.Context, names ...string) error {
	return h.ChangeTemporary(ctx, func(list []manifest.Temporary) ([]manifest.Temporary, error) {
		for _, name := range names {
			i := slices.IndexFunc(list, func(t manifest.Temporary) bool { return t.Name == name })
			if i < 0 {
				return nil, &OrderError{fmt.Sprintf("there is no temporary rule %q", name), "`floodwall temporary` lists those that there are"}
			}
			list = slices.Delete(list, i, i+1)
		}
		return list, nil
	})
}

// ChangeTemporaryOf replaces the temporary rules of an owner by the rules that change returns. change gets the owner's rules that have not ended.
// Rules of other owners stay. The change is one transaction. The rules are sorted by their owners' names.
func (h Host) ChangeTemporaryOf(ctx context.Context, owner string, change func(own []manifest.Temporary) ([]manifest.Temporary, error)) error {
	m, err := h.Manifest(ctx)
	if err != nil {
		return err
	}
	return h.ChangeTemporary(ctx, func(list []manifest.Temporary) ([]manifest.Temporary, error) {
		own, others := generation.Owned(list, owner)
		before := slices.Clone(own)
		own, err := change(own)
		if err != nil {
			return nil, err
		}
		all := slices.Concat(others, own)
		slices.SortStableFunc(all, func(a, b manifest.Temporary) int { return cmp.Compare(a.Owner, b.Owner) })
		for _, t := range own {
			if slices.ContainsFunc(before, func(b manifest.Temporary) bool { return b.Equal(t) }) {
				continue
			}
			if err := mayAdd(t, all, m); err != nil {
				return nil, err
			}
		}
		return all, nil
	})
}

// mayAdd returns an error when a temporary rule cannot be added to the running policy.
func mayAdd(t manifest.Temporary, all []manifest.Temporary, m *manifest.Manifest) error {
	same := 0
	for _, other := range all {
		if other.Name == t.Name {
			same++
		}
	}
	taken := slices.ContainsFunc(m.Rules, func(r manifest.Rule) bool { return r.Name == t.Name && !r.Temporary })
	switch {
	case same > 1 || taken:
		return &OrderError{fmt.Sprintf("there is a rule %q already", t.Name), "give it another name"}
	case len(all) > generation.Most:
		return &OrderError{fmt.Sprintf("%d temporary rules would be too many, at most %d can be", len(all), generation.Most),
			"remove one with `floodwall temporary remove`, or add rules to the policy"}
	}
	return generation.Check(t)
}

// keepTemporary adds the temporary rules of the previous policy to the policy that has replaced it. It does nothing while a policy is on trial.
func (h Host) keepTemporary(ctx context.Context, list []manifest.Temporary) {
	now, err := h.Manifest(ctx)
	there := err == nil && now.Target == plan.TargetXDP && slices.EqualFunc(now.Temporary, list, manifest.Temporary.Equal)
	if err == nil && !there && len(list)+len(now.Temporary) > 0 {
		err = h.ChangeTemporary(ctx, func([]manifest.Temporary) ([]manifest.Temporary, error) { return list, nil })
	}
	if err != nil && !errors.Is(err, control.ErrOnTrial) && !errors.Is(err, datapath.ErrNotLoaded) {
		h.Warn(fmt.Errorf("temporary rules: %w", err))
	}
}

// temporaryNow returns the temporary rules of the running policy.
func (h Host) temporaryNow(ctx context.Context) []manifest.Temporary {
	m, err := h.Manifest(ctx)
	if err != nil {
		return nil
	}
	return manifest.InForce(m.Temporary, time.Now())
}
