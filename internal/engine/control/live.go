// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"time"

	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/statedir"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// readWait is the time that a reader waits for a command that changes the state. A move of rules takes less time.
const readWait = 300 * time.Millisecond

// reading calls fn with the running policy, under the lock, so that nothing changes meanwhile. If another command holds the lock for longer than
// readWait, reading calls fn without the lock. It returns datapath.ErrNotLoaded if no policy runs.
func (in Instance) reading(ctx context.Context, fn func(*generation.Live) error) (err error) {
	defer func() { err = in.notLoaded(ctx, err) }()
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

// change calls fn with a transaction on the running policy, under the lock. It returns datapath.ErrNotLoaded if no policy runs.
func (in Instance) change(ctx context.Context, fn func(*transaction) error) error {
	err := in.locked(ctx, func(state *datapath.State) error {
		l, err := generation.Open(ctx, state)
		if err != nil {
			return err
		}
		t := in.over(l)
		defer t.close()
		if err := statedir.Check(in.Dir, in.State); err != nil {
			return err
		}
		if in.only != "" && in.only != t.now.Manifest.Boot {
			return ErrOther
		}
		return fn(t)
	})
	return in.notLoaded(ctx, err)
}

// locked calls fn with the state, under the lock. It returns datapath.ErrNotLoaded when there is no state.
func (in Instance) locked(ctx context.Context, fn func(*datapath.State) error) error {
	state, err := datapath.OpenState(in.Dir, false)
	if err != nil {
		return err
	}
	unlock, err := lock(ctx, state)
	if err != nil {
		return err
	}
	defer unlock()
	return fn(state)
}
