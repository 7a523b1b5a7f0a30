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
	ByHand    = "hand" // a person has added them
	Automatic = "auto" // detect has, and gives them names such as auto-1
)

// TemporaryOrder says which rule is to stand before those of the policy for a time.
type TemporaryOrder struct {
	Rule string `json:"rule"`           // one line, as it stands under rules; the rule has its name
	For  string `json:"for"`            // as 10m
	Name string `json:"name,omitempty"` // in place of that in the rule
	Why  string `json:"why,omitempty"`
}

// Temporary lists the temporary rules that are in force, with what they have counted.
func (h Host) Temporary(ctx context.Context) (list []control.RuleStatus, err error) {
	s, err := h.Instance.Status(ctx)
	if err != nil {
		return nil, err
	}
	list = []control.RuleStatus{}
	for _, r := range s.Rules {
		if r.Temporary != nil && time.Now().Before(r.Temporary.Until) { // the kernel ends them; a change of the rules forgets them
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
	name := o.Name
	if name == "" {
		if name, err = generation.NameIn(o.Rule); err != nil {
			return nil, err
		}
	}
	if number, found := strings.CutPrefix(name, Automatic+"-"); found && number != "" && strings.Trim(number, "0123456789") == "" {
		return nil, &OrderError{fmt.Sprintf("the name %q is kept for a rule of detect", name), "give the rule another name"}
	}
	now := time.Now().UTC()
	t := manifest.Temporary{Name: name, Owner: ByHand, Rule: o.Rule, Began: now, Until: now.Add(d).Truncate(time.Second), Why: o.Why}
	return &t, h.ChangeTemporaryOf(ctx, ByHand, func(own []manifest.Temporary) ([]manifest.Temporary, error) { return append(own, t), nil })
}

// RemoveTemporary removes temporary rules, whoever has added them. One that is not there is an error, and nothing is removed.
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

// ChangeTemporaryOf has change say which temporary rules an owner has, of those that have not ended. Those of other owners stay. It is one
// transaction. The rules stand in the order of their owners' names.
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

// mayAdd is an error when a rule cannot be one of these beside what runs.
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

// keepTemporary brings what runs to temporary rules that were in force before it took the place of another policy. That is not done while
// a policy is on trial.
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

// temporaryNow are the temporary rules of what runs.
func (h Host) temporaryNow(ctx context.Context) []manifest.Temporary {
	m, err := h.Manifest(ctx)
	if err != nil {
		return nil
	}
	return manifest.InForce(m.Temporary, time.Now())
}
