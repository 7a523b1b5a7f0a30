package control

import (
	"context"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/generation"
)

// whole finds the parts of the policy in force that the kernel lacks: packets may pass that the policy drops.
func (s *Status) whole(ctx context.Context, l *generation.Live, g *generation.Generation) error {
	if g.Program != nil {
		lacks, err := l.State.Lacking(g.Manifest.Devices, g.Number)
		if err != nil {
			return err
		}
		for _, lack := range lacks {
			s.lacks(lack)
		}
		s.Open = append(s.Open, generation.Renamed(g.Manifest, lacks)...)
	} else {
		for _, name := range g.Manifest.Devices {
			if datapath.DeviceExists(name) != nil {
				s.lacks(datapath.Lack{Device: name, Gone: true})
			}
		}
	}
	if l.Trial != nil {
		return nil // what guards the trial is in netfilter too
	}
	for _, p := range g.Manifest.Rulesets {
		t, err := l.Tool(ctx, p.Kind)
		if err == nil {
			err = t.Verify(ctx, p)
		}
		if err != nil {
			s.open("netfilter: %v: somebody has changed it", strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	return nil
}

// lacks says what a device lacks.
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

func (s *Status) open(format string, args ...any) {
	s.Open = append(s.Open, fmt.Sprintf(format, args...))
}
