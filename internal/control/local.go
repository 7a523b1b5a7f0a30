package control

import (
	"context"
	"errors"

	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/dynamicset"
)

// RefreshLocal brings the set `local` of what runs to the addresses that the host has now. Nothing loaded is no error.
func (in Instance) RefreshLocal(ctx context.Context) (added, removed int, err error) {
	err = in.change(ctx, func(l *live) error {
		for _, g := range l.all() { // the one that decides last: its changes are reported
			if added, removed, err = g.refreshLocal(); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, datapath.ErrNotLoaded) {
		return 0, 0, nil
	}
	return added, removed, err
}

func (g *generation) refreshLocal() (added, removed int, err error) {
	if g.program == nil {
		return 0, 0, nil
	}
	dynamic, err := dynamicset.Open(g.program)
	if err != nil || dynamic == nil {
		return 0, 0, err
	}
	for _, e := range g.manifest.Sets {
		if e.Local {
			return dynamicset.UpdateLocal(dynamic, e.Dynamic)
		}
	}
	return 0, 0, nil
}
