// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"context"
	"time"

	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// Counts reads all counters of a generation.
func (l *Live) Counts(ctx context.Context, g *Generation) (*manifest.Counts, error) {
	c := &manifest.Counts{Manifest: g.Manifest, Program: g.Program != nil, Ruleset: g.Manifest.Ruleset(), Named: map[string]manifest.Count{}}
	if err := c.Carried.Read(l.State, g.Number); err != nil {
		return nil, err
	}
	if c.Program && g.Foreign() == nil {
		if err := c.ReadSlots(l.State); err != nil {
			return nil, err
		}
	}
	c.Read = time.Now()
	if c.Ruleset == nil {
		return c, nil
	}
	if p := g.Manifest.TemporaryRuleset; p != nil {
		if err := l.temporaryCounts(ctx, p, c.Named); err != nil {
			return nil, err
		}
	}
	t, err := l.Tool(ctx, c.Ruleset.Kind)
	if err != nil {
		return nil, err
	}
	found, err := t.Counters(ctx, c.Ruleset.Name)
	if !c.Program {
		c.Read = time.Now()
	}
	for name, n := range found {
		c.Named[name] = manifest.InFrames(n)
	}
	return c, netfilter.UnlessAbsent(err)
}

// temporaryCounts adds the counters that temporary rules have in netfilter.
func (l *Live) temporaryCounts(ctx context.Context, p *netfilter.Ruleset, to map[string]manifest.Count) error {
	t, err := l.Tool(ctx, p.Kind)
	if err != nil {
		return err
	}
	found, err := t.Counters(ctx, p.Name)
	for name, n := range found {
		to[manifest.TemporaryCounter(name)] = manifest.InFrames(n)
	}
	return netfilter.UnlessAbsent(err)
}
