package control

import (
	"context"
	"errors"
	"time"

	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// live is the policy that runs, with the steps by which this package changes it.
type live struct{ *generation.Live }

// openLive is generation.Open.
func openLive(ctx context.Context, state *datapath.State) (*live, error) {
	return asLive(generation.Open(ctx, state))
}

// openAny is generation.OpenAny.
func openAny(ctx context.Context, state *datapath.State) (*live, error) {
	return asLive(generation.OpenAny(ctx, state))
}

func asLive(l *generation.Live, err error) (*live, error) {
	if err != nil {
		return nil, err
	}
	return &live{l}, nil
}

// readWait is the time for which a reader waits for a command that changes the state: a move of rules takes less.
const readWait = 300 * time.Millisecond

// reading runs fn on the policy that runs. No change happens meanwhile, unless fn takes long. It returns datapath.ErrNotLoaded if nothing
// runs.
func (in Instance) reading(ctx context.Context, fn func(*generation.Live) error) error {
	state, err := datapath.OpenState(in.Dir, false)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, readWait)
	defer cancel()
	unlock, err := state.Lock(limited)
	if err == nil {
		defer unlock()
	} else if !errors.Is(err, datapath.ErrLocked) {
		return err
	}
	l, err := generation.Find(ctx, in.Dir)
	if err != nil {
		return err
	}
	defer l.Close()
	return fn(l)
}
