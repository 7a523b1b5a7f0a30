// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// whole finds the parts of the policy in force that are missing in the kernel, so that packets may pass that the policy drops.
func (s *Status) whole(ctx context.Context, in Instance, l *generation.Live, g *generation.Generation) error {
	if g.Program != nil {
		lacks, err := l.State.Lacking(g.Manifest.Devices, g.Number)
		if err != nil {
			return err
		}
		for _, lack := range lacks {
			s.lacks(lack)
		}
		for _, name := range generation.Renamed(g.Manifest, lacks) {
			s.open("%s", RenamedText(name))
		}
	} else {
		for _, name := range g.Manifest.Devices {
			if datapath.DeviceExists(name) != nil {
				s.lacks(datapath.Lack{Device: name, Gone: true})
			}
		}
	}
	for _, text := range portsOf(g.Manifest) {
		s.open("%s", text)
	}
	left, err := in.deciding(ctx, l)
	if err != nil {
		return err
	}
	for _, h := range left {
		s.Leftovers = append(s.Leftovers, leftoverText(h))
	}
	if l.Trial != nil {
		return nil // during a trial netfilter also has the rules that guard the trial
	}
	for _, p := range g.Manifest.Rulesets {
		t, err := l.Tool(ctx, p.Kind)
		if err == nil {
			err = t.Verify(ctx, p)
		}
		if err != nil {
			text := strings.ReplaceAll(err.Error(), "\n", "; ")
			if netfilter.Unread(err) {
				s.open("netfilter: whether it is whole is not known: %s", text)
				continue
			}
			s.open("netfilter: %s: somebody has changed it", text)
		}
	}
	return nil
}

// lacks adds a missing program of a device to the open parts.
func (s *Status) lacks(lack datapath.Lack) {
	switch {
	case lack.Gone:
		s.open("device %s has gone: what returns under its name is filtered by `floodwall repair`, or by `floodwall daemon` at once", lack.Device)
	case lack.Of == "":
		s.open("device %s is not filtered: it has returned, or another tool has detached the program", lack.Device)
	default:
		s.open("%s is not filtered: another tool has detached the program", lack.Of)
	}
}

// RenamedText describes the problem with a device in Repaired.Renamed, and what to do.
func RenamedText(name string) string {
	return fmt.Sprintf("device %s has another name now, so rules beside XDP do not filter it: rename it back, or apply the policy with the new name", name)
}

func (s *Status) open(format string, args ...any) {
	s.Open = append(s.Open, fmt.Sprintf(format, args...))
}
