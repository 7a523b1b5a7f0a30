// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// Netfilter may have rulesets that bear the instance's names but belong to no generation of its state. They come from saved rules that were restored,
// from a program that crashed, or from an instance whose state was deleted. Such rulesets decide in addition to the running policy.

// UnownedError says that netfilter has rulesets of the instance that no running generation owns.
type UnownedError struct {
	Left []netfilter.Held
	Err  error // the underlying error: datapath.ErrNotLoaded, or the reason why the rulesets could not be removed
}

func (e *UnownedError) Error() string {
	if errors.Is(e.Err, datapath.ErrNotLoaded) {
		return fmt.Sprintf("%v, but %s, and packets are subject to it", e.Err, heldText(e.Left))
	}
	return fmt.Sprintf("%s: %v", heldText(e.Left), e.Err)
}

// Unwrap returns the underlying error.
func (e *UnownedError) Unwrap() error { return e.Err }

// Hint is the remedy.
func (e *UnownedError) Hint() string {
	if errors.Is(e.Err, datapath.ErrNotLoaded) {
		return "it is from saved rules that were restored, or from an instance whose state is gone: `floodwall unload` removes it, and so does `floodwall apply POLICY`"
	}
	var h interface{ Hint() string }
	if errors.As(e.Err, &h) && h.Hint() != "" {
		return h.Hint()
	}
	return "mend the program that the message names, and repeat the command: nothing else was removed, and the state is kept until all has gone"
}

// heldText describes the rulesets that netfilter has.
func heldText(list []netfilter.Held) string {
	var texts []string
	for _, h := range list {
		texts = append(texts, h.String())
	}
	return "netfilter holds " + strings.Join(texts, " and ")
}

// held lists the rulesets in the kernel that bear the instance's names, except those in keep.
func (in Instance) held(keep []*netfilter.Ruleset) (list []netfilter.Held, err error) {
	for _, prefix := range []string{in.namePrefix(), in.temporaryPrefix(netfilter.KindNft)} {
		of, err := netfilter.ListHeld(prefix)
		if err != nil {
			return nil, err
		}
		list = append(list, of...)
	}
	return slices.DeleteFunc(list, func(h netfilter.Held) bool {
		return slices.ContainsFunc(keep, func(p *netfilter.Ruleset) bool { return p.Kind == h.Kind && p.Name == h.Name })
	}), nil
}

// owned returns the rulesets of the running generations and of more, including the rulesets of temporary rules.
func owned(l *generation.Live, more ...*generation.Generation) (list []*netfilter.Ruleset) {
	for _, g := range append(l.All(), more...) {
		if g != nil {
			list = append(list, g.Manifest.AllRulesets()...)
			if p := g.Manifest.TemporaryRuleset; p != nil {
				list = append(list, p)
			}
		}
	}
	return list
}

// deciding lists the rulesets that decide although no running generation owns them.
func (in Instance) deciding(ctx context.Context, l *generation.Live) ([]netfilter.Held, error) {
	var keep []*netfilter.Ruleset
	if l != nil {
		keep = owned(l)
	}
	list, err := in.held(keep)
	return slices.DeleteFunc(list, func(h netfilter.Held) bool { return !h.Decides(ctx) }), err
}

// Leftovers describes the rulesets of the instance that decide although no running generation owns them. It returns nil when there are none, or when
// they cannot be listed.
func (in Instance) Leftovers(ctx context.Context) (texts []string) {
	err := in.reading(ctx, func(l *generation.Live) error {
		list, err := in.deciding(ctx, l)
		for _, h := range list {
			texts = append(texts, leftoverText(h))
		}
		return err
	})
	if err != nil {
		return nil
	}
	return texts
}

func leftoverText(h netfilter.Held) string {
	return fmt.Sprintf("netfilter holds %s, which no policy in force has, and packets are subject to it: `floodwall repair` removes it", h)
}

// notLoaded returns an *UnownedError for datapath.ErrNotLoaded if rulesets of the instance still decide. It returns any other error unchanged.
func (in Instance) notLoaded(ctx context.Context, err error) error {
	if !errors.Is(err, datapath.ErrNotLoaded) || errors.As(err, new(*generation.RemovedError)) {
		return err
	}
	if list, failed := in.deciding(ctx, nil); failed == nil && len(list) > 0 {
		return &UnownedError{list, err}
	}
	return err
}

// removeHeld removes all rulesets that bear the instance's names except those in keep, whichever program made them. It then checks that they are
// gone.
func (in Instance) removeHeld(ctx context.Context, keep ...*netfilter.Ruleset) (removed []netfilter.Held, err error) {
	list, err := in.held(keep)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	err = netfilter.RemoveHeld(ctx, list)
	left, failed := in.held(keep)
	switch {
	case failed != nil:
		return nil, errors.Join(err, failed)
	case len(left) > 0 && err == nil:
		err = errors.New("another program has put it back, or holds it")
	case len(left) == 0:
		return list, nil
	}
	return nil, &UnownedError{left, err}
}
