// SPDX-License-Identifier: Apache-2.0

// This file compares the executed instructions of each kind of packet with bounds. An interpreter of the loaded program (cmd/floodwall-lab/guard) counts
// them. So the figures are the same on every machine with the same kernel, idle or busy.
//
// It does not measure the time of a program: `bench program` and `bench drop` do.

package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// guard is the state of one run.
type guard struct {
	at         *rig.Site
	listLength int       // addresses
	place      string    // of the policy, see rig.TargetOptions
	list       *rig.List // set when its subject is open
	found      map[string]Counts
	lines      map[string][]Line
}

// Measure counts the instructions of packets of these kinds. The policies are applied in a lab. If progress is a terminal, it shows a line there.
func Measure(ctx context.Context, bounds []Bound, progress io.Writer) (findings []Finding, err error) {
	steps := rig.NewProgress(progress, []string{"guard"}, rig.Options{}.WithDefaults())
	steps.Begin()
	defer steps.End()
	g := &guard{listLength: listLength, place: "native", found: map[string]Counts{}, lines: map[string][]Line{}}
	err = rig.InLab(ctx, func(l *lab.Lab) (err error) {
		if g.at, err = rig.NewSiteFor(l, packet.Destination()); err != nil {
			return err
		}
		for i := range subjects {
			kinds := subjects[i].among(bounds)
			if len(kinds) == 0 {
				continue
			}
			steps.Show("%s", kinds[0].name)
			if err := g.count(ctx, &subjects[i], kinds); err != nil {
				return fmt.Errorf("%s: %w", kinds[0].name, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, b := range bounds {
		findings = append(findings, Finding{b, g.found[b.Kind], g.lines[b.Kind]})
	}
	return findings, nil
}

// among returns the subject's kinds with bounds.
func (s *subject) among(bounds []Bound) (kinds []kind) {
	for _, k := range s.kinds {
		if slices.ContainsFunc(bounds, func(b Bound) bool { return b.Kind == k.name }) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// count interprets the subject's program.
func (g *guard) count(ctx context.Context, s *subject, kinds []kind) error {
	return s.open(ctx, g, func(p *ebpf.Program) error {
		m, err := OpenProgram(p)
		if err != nil {
			return err
		}
		for _, k := range kinds {
			counts, err := k.measure(g, m)
			if err != nil {
				return errors.Join(fmt.Errorf("%s: %w", k.name, err), m.Close())
			}
			g.found[k.name], g.lines[k.name] = counts, m.Lines()
		}
		return m.Close()
	})
}
