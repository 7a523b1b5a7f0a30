// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"context"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/host/facts"
)

// DynamicSets returns the places in the kernel in which a generation has a dynamic set. The place in XDP comes first, because XDP sees packets first.
// An entry that the first place refuses must not be added to the next.
func (l *Live) DynamicSets(ctx context.Context, g *Generation, e manifest.Set) (sets []ban.Set, err error) {
	if g.Program != nil {
		dynamic, err := ban.Open(g.Program)
		if err != nil {
			return nil, err
		}
		if dynamic != nil {
			sets = append(sets, ban.NewXDPSet(dynamic.Sets[e.Dynamic], e))
		}
	}
	for _, p := range g.Manifest.Rulesets {
		if names, ok := p.Sets[e.Name]; ok {
			t, err := l.Tool(ctx, p.Kind)
			if err != nil {
				return nil, err
			}
			sets = append(sets, ban.NewFilterSet(t, p, names, e))
		}
	}
	return sets, nil
}

// CountEntries returns the number of entries of a dynamic set, in the place that sees packets first.
func (l *Live) CountEntries(ctx context.Context, g *Generation, e manifest.Set) (int, error) {
	if e.Local && g.Program == nil {
		own, err := facts.LocalPrefixes()
		return len(own), err
	}
	sets, err := l.DynamicSets(ctx, g, e)
	if err != nil || len(sets) == 0 {
		return 0, err
	}
	return sets[0].Count(ctx)
}

// Entries lists the entries of a dynamic set of a generation, in any order.
func (l *Live) Entries(ctx context.Context, g *Generation, e manifest.Set) ([]ban.Ban, error) {
	sets, err := l.DynamicSets(ctx, g, e)
	if err != nil || len(sets) == 0 {
		return nil, err
	}
	return sets[0].List(ctx)
}

// RefreshLocal updates the set `local` of an XDP program to the host's present addresses. It returns the numbers of added and removed entries. It
// also updates the program's data about the host's devices. Without such a set it changes nothing and returns 0.
func (g *Generation) RefreshLocal() (added, removed int, err error) {
	if g.Program == nil {
		return 0, 0, nil
	}
	memory, err := g.Program.Memory(image.HostEnds)
	if err == nil {
		err = ban.WriteEnds(memory[image.HostEnds], g.Manifest.Devices)
	}
	if err != nil {
		return 0, 0, err
	}
	dynamic, err := ban.Open(g.Program)
	if err != nil || dynamic == nil {
		return 0, 0, err
	}
	for _, e := range g.Manifest.Sets {
		if e.Local {
			return ban.UpdateLocal(dynamic, e.Dynamic)
		}
	}
	return 0, 0, nil
}

// BansFor returns the entries of the dynamic sets that both generations have, by the name of the set. These are the entries of the generation now.
// When before runs again, its sets must have the same entries.
func (l *Live) BansFor(ctx context.Context, now, before *Generation) (map[string][]ban.Ban, error) {
	bans := map[string][]ban.Ban{}
	for _, e := range before.Manifest.Sets {
		was, ok := now.Manifest.Set(e.Name)
		if e.Dynamic < 0 || e.Local || !ok || was.Dynamic < 0 {
			continue
		}
		list, err := l.Entries(ctx, now, was)
		if err != nil {
			return nil, err
		}
		bans[e.Name] = list
	}
	return bans, nil
}

// Hold replaces the entries of the dynamic sets of an XDP program by the given bans, by the name of the set. The program must not run. Old entries
// that are not among the bans were unblocked while the program did not run. Without a program Hold does nothing.
func (g *Generation) Hold(bans map[string][]ban.Ban) error {
	if g.Program == nil {
		return nil
	}
	dynamic, err := ban.Open(g.Program)
	if err != nil || dynamic == nil {
		return err
	}
	for _, e := range g.Manifest.Sets {
		if list, ok := bans[e.Name]; ok {
			if err := ban.Refill(dynamic.Sets[e.Dynamic], e, list); err != nil {
				return err
			}
		}
	}
	return nil
}
