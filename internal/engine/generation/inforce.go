// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// InForce returns the generation in force: the newest generation that decides. If other tools have removed it completely from the kernel, InForce
// still returns it, from its record. It returns datapath.ErrNotLoaded when no generation is in force.
func (l *Live) InForce() (*Generation, error) {
	if len(l.Generations) > 0 {
		return l.Generations[0], nil
	}
	number, err := l.State.Held()
	if err != nil {
		return nil, err
	}
	if number > 0 {
		p, err := l.State.Open(number)
		if err != nil {
			return nil, err
		}
		return OfProgram(p)
	}
	r, err := recordInForce(l.State)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, datapath.ErrNotLoaded
	}
	m, err := manifest.Read(r.Number, r.Manifest)
	return &Generation{Number: r.Number, Manifest: m}, err
}

// recordInForce returns the record of the policy in force. It returns nil when no policy is in force.
func recordInForce(state *datapath.State) (*datapath.Record, error) {
	records, err := state.Records()
	if err != nil {
		return nil, err
	}
	for _, is := range []func(*datapath.Record) bool{
		func(r *datapath.Record) bool { return r.Stands },
		func(r *datapath.Record) bool { return r.Took },
	} {
		if i := slices.IndexFunc(records, is); i >= 0 {
			return records[i], nil
		}
	}
	return nil, nil
}

// RemovedError says that no part of the policy in force is left in the kernel: its devices have gone, or another tool has removed it. It wraps
// datapath.ErrNotLoaded.
type RemovedError struct{ What string }

func (e *RemovedError) Error() string { return datapath.ErrNotLoaded.Error() + ": " + e.What }

// Unwrap returns datapath.ErrNotLoaded.
func (e *RemovedError) Unwrap() error { return datapath.ErrNotLoaded }

// Hint is the remedy.
func (e *RemovedError) Hint() string {
	return "`floodwall repair` puts the policy back, `floodwall daemon` does so by itself, and `floodwall unload` gives it up"
}

// whyRemoved finds out why no policy runs. It returns datapath.ErrNotLoaded when no policy is in force, else a *RemovedError.
func whyRemoved(state *datapath.State) error {
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
		return &RemovedError{what}
	}
	r, err := recordInForce(state)
	if r == nil || err != nil {
		return orNotLoaded(err)
	}
	m, err := manifest.Read(r.Number, r.Manifest)
	if err != nil || m.Ruleset() == nil {
		return orNotLoaded(err)
	}
	return &RemovedError{fmt.Sprintf("somebody has removed %s, which %s was put into", m.Ruleset().Name, m.File)}
}

// AskedMode returns the mode that the operator asked for, of the generation in force. It returns datapath.ErrNotLoaded when none is.
func AskedMode(ctx context.Context, dir string) (datapath.Mode, error) {
	state, err := datapath.OpenState(dir, false)
	if err != nil {
		return "", err
	}
	l, err := OpenAny(ctx, state)
	if err != nil {
		return "", err
	}
	defer l.Close()
	g, err := l.InForce()
	if err != nil {
		return "", err
	}
	defer g.Close()
	return g.Manifest.Mode, nil
}

func orNotLoaded(err error) error {
	if err == nil {
		err = datapath.ErrNotLoaded
	}
	return err
}

// Renamed returns the devices that were renamed, by their names in the policy. XDP still runs on them, but rules of netfilter match only the old
// name.
func Renamed(m *manifest.Manifest, lacks []datapath.Lack) []string {
	return slices.DeleteFunc(slices.Clone(m.Devices), func(name string) bool {
		known := slices.ContainsFunc(lacks, func(l datapath.Lack) bool { return l.Device == name })
		return m.Ruleset() == nil || known || datapath.DeviceExists(name) == nil
	})
}
