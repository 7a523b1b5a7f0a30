package generation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// InForce is the generation in force: the newest that decides, or when others have removed all of it the one that should.
// It is datapath.ErrNotLoaded when there is none.
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

// recordInForce is the record of the policy in force, nil when there is none.
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

// RemovedError says that nothing of the policy in force is in the kernel any more: its devices have gone, or another tool has removed it.
// errors.Is reports it as datapath.ErrNotLoaded, too.
type RemovedError struct{ What string }

func (e *RemovedError) Error() string { return datapath.ErrNotLoaded.Error() + ": " + e.What }

// Unwrap is datapath.ErrNotLoaded.
func (e *RemovedError) Unwrap() error { return datapath.ErrNotLoaded }

// Hint is the remedy.
func (e *RemovedError) Hint() string {
	return "`floodwall repair` puts the policy back, `floodwall daemon` does so by itself, and `floodwall unload` gives it up"
}

// whyRemoved finds out why nothing runs: datapath.ErrNotLoaded when nothing is to, else a RemovedError.
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

func orNotLoaded(err error) error {
	if err == nil {
		err = datapath.ErrNotLoaded
	}
	return err
}

// Renamed are the devices whose name is no longer that in the policy: XDP goes on there, but rules of netfilter match the name.
func Renamed(m *manifest.Manifest, lacks []datapath.Lack) []string {
	return slices.DeleteFunc(slices.Clone(m.Devices), func(name string) bool {
		known := slices.ContainsFunc(lacks, func(l datapath.Lack) bool { return l.Device == name })
		return m.Ruleset() == nil || known || datapath.DeviceExists(name) == nil
	})
}
