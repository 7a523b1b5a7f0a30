package control

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/datapath"
)

// live is what runs: the generations, newest first, and the newest one's manifest. There is more than one only when an
// apply died while it went from device to device.
type live struct {
	state       *datapath.State
	generations []*datapath.Generation
	manifests   []*manifest
}

// open opens what runs. It returns datapath.ErrNotLoaded when nothing does.
func (in Instance) open() (*live, error) {
	state, err := datapath.OpenState(in.Dir, false)
	if err != nil {
		return nil, err
	}
	generations, err := state.Running()
	if gone, goneErr := state.Gone(); errors.Is(err, datapath.ErrNotLoaded) && goneErr == nil && len(gone) > 0 {
		return nil, fmt.Errorf("%w: what was filtered has gone (%s)", err, strings.Join(gone, ", "))
	}
	if err != nil {
		return nil, err
	}
	l := &live{state: state, generations: generations}
	for _, g := range generations {
		m, err := readManifest(g)
		if err != nil {
			l.close()
			return nil, err
		}
		l.manifests = append(l.manifests, m)
	}
	return l, nil
}

func (l *live) close() { datapath.CloseAll(l.generations) }

// Unload detaches from all devices and removes everything. It returns datapath.ErrNotLoaded when there was nothing.
func (in Instance) Unload(ctx context.Context) error {
	state, err := datapath.OpenState(in.Dir, false)
	if err != nil {
		return err
	}
	unlock, err := lock(ctx, state)
	if errors.Is(err, datapath.ErrNotLoaded) {
		return err
	}
	if err != nil {
		return err
	}
	defer unlock()
	return state.Unload()
}
