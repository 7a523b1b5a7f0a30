package control

import (
	"context"
	"errors"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// running is what runs when an apply begins, or ran before its devices went away.
type running struct {
	state      *datapath.State
	live       *live                  // nil when nothing runs
	generation *generation.Generation // the newest that runs, or whose devices have gone; nil when there is none
	manifests  []*manifest.Manifest   // of all that run, newest first; else of the one whose devices have gone
	foreign    error                  // why the maps of generation cannot be read; nil: they can
	counters   *ebpf.Map              // of the instance; nil when there are none, or when they cannot be read
	counted    *manifest.Counts       // what generation has counted; nil when nothing runs
	inherits   datapath.Inherited     // what the next program goes on with beside the counters
}

// look finds out what runs.
func look(ctx context.Context, state *datapath.State) (*running, error) {
	r := &running{state: state}
	if err := r.read(ctx); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *running) read(ctx context.Context) (err error) {
	r.live, err = openLive(ctx, r.state)
	switch {
	case err == nil:
		err = r.readLive(ctx)
	case errors.Is(err, datapath.ErrNotLoaded):
		err = r.lookBack()
	}
	if err != nil {
		return err
	}
	if r.foreign = r.generation.Foreign(); r.foreign == nil {
		if r.counters, err = r.state.Counters(); err != nil {
			return err
		}
	}
	r.inherits, err = r.state.Inherited()
	return err
}

// readLive reads what runs.
func (r *running) readLive(ctx context.Context) (err error) {
	r.generation = r.live.Generations[0]
	for _, g := range r.live.Generations {
		r.manifests = append(r.manifests, g.Manifest)
	}
	if r.live.Standby != nil { // its program may count again
		r.manifests = append(r.manifests, r.live.Standby.Manifest)
	}
	r.counted, err = r.live.Counts(ctx, r.generation)
	return err
}

// lookBack finds the policy whose devices have all gone.
func (r *running) lookBack() error {
	latest, err := r.state.Latest()
	if latest == nil || err != nil {
		return err
	}
	r.generation, err = generation.OfProgram(latest)
	if err == nil {
		r.manifests = []*manifest.Manifest{r.generation.Manifest}
	}
	return err
}

// program reports whether any of it is in XDP.
func (r *running) program() bool {
	if r.live != nil {
		for _, g := range r.live.All() {
			if g.Program != nil {
				return true
			}
		}
	}
	return r.generation != nil && r.generation.Program != nil
}

func (r *running) close() {
	switch {
	case r.live != nil:
		r.live.Close()
	case r.generation != nil:
		r.generation.Close()
	}
	if r.counters != nil {
		r.counters.Close()
	}
	r.inherits.Close()
}
