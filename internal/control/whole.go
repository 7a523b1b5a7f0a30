package control

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/manifest"
)

// FallenError says that nothing of the policy in force is in the kernel any more: its devices have gone, or another tool has removed it.
// errors.Is reports it as datapath.ErrNotLoaded, too.
type FallenError struct{ What string }

func (e *FallenError) Error() string { return datapath.ErrNotLoaded.Error() + ": " + e.What }

// Unwrap is datapath.ErrNotLoaded.
func (e *FallenError) Unwrap() error { return datapath.ErrNotLoaded }

// Hint is the remedy.
func (e *FallenError) Hint() string {
	return "`floodwall repair` puts the policy back, `floodwall daemon` does so by itself, and `floodwall unload` gives it up"
}

// fallen finds out why nothing runs: datapath.ErrNotLoaded when nothing is to, else a FallenError.
func fallen(state *datapath.State) error {
	gone, err := state.Gone()
	if err != nil {
		return err
	}
	if len(gone) > 0 {
		what := fmt.Sprintf("what was filtered has gone (%s)", strings.Join(gone, ", "))
		for _, d := range gone {
			if datapath.DeviceExists(d) == nil {
				what += fmt.Sprintf("; device %s is there again, and is not filtered", d)
			}
		}
		return &FallenError{what}
	}
	r, err := inForce(state)
	if r == nil || err != nil {
		return orNotLoaded(err)
	}
	m, err := manifest.Read(r.Number, r.Manifest)
	if err != nil || m.Ruleset() == nil {
		return orNotLoaded(err)
	}
	return &FallenError{fmt.Sprintf("somebody has removed %s, which %s was put into", m.Ruleset().Name, m.File)}
}

func orNotLoaded(err error) error {
	if err == nil {
		err = datapath.ErrNotLoaded
	}
	return err
}

// whole finds the parts of the policy in force that the kernel lacks: packets may pass that the policy drops.
func (s *Status) whole(ctx context.Context, l *live, g *generation) error {
	if g.program != nil {
		lacks, err := l.state.Lacking(g.manifest.Devices, g.number)
		if err != nil {
			return err
		}
		for _, lack := range lacks {
			s.lacks(lack)
		}
		s.Open = append(s.Open, renamed(g.manifest, lacks)...)
	} else {
		for _, name := range g.manifest.Devices {
			if datapath.DeviceExists(name) != nil {
				s.lacks(datapath.Lack{Device: name, Gone: true})
			}
		}
	}
	if l.trial != nil {
		return nil // what guards the trial is in netfilter too
	}
	for _, p := range g.manifest.Rulesets {
		t, err := l.tool(ctx, p.Kind)
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

// renamed names devices whose name is no longer that in the policy: XDP goes on there, but rules of netfilter match the name.
func renamed(m *manifest.Manifest, lacks []datapath.Lack) (texts []string) {
	for _, name := range m.Devices {
		known := slices.ContainsFunc(lacks, func(l datapath.Lack) bool { return l.Device == name })
		if m.Ruleset() != nil && !known && datapath.DeviceExists(name) != nil {
			texts = append(texts, fmt.Sprintf("device %s has another name now, so rules beside XDP do not filter it: rename it back, or apply the policy with the new name", name))
		}
	}
	return texts
}

func (s *Status) open(format string, args ...any) {
	s.Open = append(s.Open, fmt.Sprintf(format, args...))
}
