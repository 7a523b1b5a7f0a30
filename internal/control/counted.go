package control

import (
	"context"
	"errors"
	"time"

	"github.com/floodwall/floodwall/internal/counts"
	"github.com/floodwall/floodwall/internal/manifest"
	"github.com/floodwall/floodwall/internal/netfilter"
	"github.com/floodwall/floodwall/internal/ruleset"
)

// tallies reads all counters of a generation.
func (l *live) tallies(ctx context.Context, g *generation) (*counts.Counts, error) {
	c := &counts.Counts{Manifest: g.manifest, Program: g.program != nil, Ruleset: g.manifest.Ruleset(), Named: map[string]counts.Count{}}
	if err := c.Carried.Read(l.state, g.number); err != nil {
		return nil, err
	}
	if c.Program && g.foreign() == nil {
		if err := c.ReadSlots(l.state); err != nil {
			return nil, err
		}
	}
	c.Read = time.Now()
	if c.Ruleset == nil {
		return c, nil
	}
	if p := g.manifest.TemporaryRuleset; p != nil {
		if err := l.temporaryCounts(ctx, p, c.Named); err != nil {
			return nil, err
		}
	}
	t, err := l.tool(ctx, c.Ruleset.Kind)
	if err != nil {
		return nil, err
	}
	found, err := t.Counters(ctx, c.Ruleset.Name)
	if !c.Program {
		c.Read = time.Now()
	}
	for name, n := range found {
		c.Named[name] = counts.InFrames(n)
	}
	return c, unlessAbsent(err)
}

// temporaryCounts adds what temporary rules have counted in netfilter.
func (l *live) temporaryCounts(ctx context.Context, p *ruleset.Ruleset, to map[string]counts.Count) error {
	t, err := l.tool(ctx, p.Kind)
	if err != nil {
		return err
	}
	found, err := t.Counters(ctx, p.Name)
	for name, n := range found {
		to[manifest.TemporaryCounter(name)] = counts.InFrames(n)
	}
	return unlessAbsent(err)
}

// unlessAbsent returns nil for the error that another tool has removed the object: Status reports that, and the next apply repairs it.
func unlessAbsent(err error) error {
	var state *netfilter.StateError
	if errors.As(err, &state) && state.State == netfilter.Absent {
		return nil
	}
	return err
}
