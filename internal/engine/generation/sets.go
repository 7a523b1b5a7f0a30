package generation

import (
	"context"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/host/facts"
)

// DynamicSets are the places where a generation has a dynamic set. XDP comes first, because it sees packets first. An entry that it refuses
// is not to be entered elsewhere.
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

// CountEntries is how many entries a dynamic set has where packets meet it first.
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

// Entries lists what a dynamic set of a generation holds, in any order.
func (l *Live) Entries(ctx context.Context, g *Generation, e manifest.Set) ([]ban.Blocked, error) {
	sets, err := l.DynamicSets(ctx, g, e)
	if err != nil || len(sets) == 0 {
		return nil, err
	}
	return sets[0].List(ctx)
}

// RefreshLocal brings the set `local` of an XDP program to the addresses that the host has now, and returns how many it added and removed.
// It also brings what the program knows of the host's devices up to date.
// A generation without such a set has no change.
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

// BansFor are the entries that the generation now has in dynamic sets which the generation before has too, by the name of the set: before is
// to have them when it runs again.
func (l *Live) BansFor(ctx context.Context, now, before *Generation) (map[string][]ban.Blocked, error) {
	bans := map[string][]ban.Blocked{}
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

// Hold gives the dynamic sets of an XDP program that does not run these bans, by the name of the set, and no others: what a set has beyond
// them was lifted while the program rested. Without a program it does nothing.
func (g *Generation) Hold(bans map[string][]ban.Blocked) error {
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
