package control

import (
	"context"
	"errors"
	"time"

	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/manifest"
)

// keepConnections has the program know the connections that the kernel has, and has protections begin as they stand. What
// the generation before knew the program has from it already.
func (l *loaded) keepConnections(context.Context) error {
	if len(l.found) == 0 {
		return nil
	}
	if l.running.generation != nil {
		if err := l.program.CarryStates(l.running.inherits.States, l.manifest.Staying(l.running.generation.manifest)); err != nil {
			return err
		}
	}
	return know(l.program.Flows, l.manifest)
}

// know has a program know the connections that the kernel has. It is for one that begins, and for one that returns.
func know(open func() (*datapath.Flows, error), m *manifest.Manifest) error {
	flows, err := open()
	if flows == nil || err != nil {
		return err
	}
	defer flows.Close()
	return flows.Learn(m.Protects)
}

// rejoin has a generation that returns know the connections that were made without it. Without them it would ask for each by a
// packet, which an ACK flood can delay, so an error keeps nobody from returning to it.
func (g *generation) rejoin() error {
	if g == nil || g.program == nil {
		return nil
	}
	return know(g.program.Flows, g.manifest)
}

// A handshake that a cookie began ends in a roundTrip, but for losses. Protections that are to end rest for longer, in
// which the change is made or, when it fails, they go on: they answer no SYN and pass all segments meanwhile.
const (
	roundTrip = time.Second
	Resting   = 5 * time.Second
)

// windDown has the protections of a generation that the next one, nil for none, has not answer no more SYNs, and waits for
// the cookies on their way: behind it nobody would know what to do with them.
func (g *generation) windDown(ctx context.Context, next *manifest.Manifest) error {
	if g == nil || g.program == nil {
		return nil
	}
	stay := map[int]bool{}
	if next != nil {
		for _, then := range next.Staying(g.manifest) {
			stay[then] = true
		}
	}
	var ending []int
	for i := range g.manifest.Protections {
		if !stay[i] {
			ending = append(ending, i)
		}
	}
	if ending == nil {
		return nil
	}
	answered, err := g.program.Rest(ending, Resting)
	if !answered || err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(roundTrip):
	}
	return nil
}

// RotateKeys gives the protections of what runs a new key for cookies, and reports whether it did. Cookies on their way
// remain valid. Nothing loaded is no error.
func (in Instance) RotateKeys(ctx context.Context) (rotated bool, err error) {
	err = in.change(ctx, func(l *live) (err error) {
		rotated, err = l.state.RotateKeys()
		return err
	})
	if errors.Is(err, datapath.ErrNotLoaded) {
		return false, nil
	}
	return rotated, err
}
