package control

import (
	"context"
	"errors"
	"time"

	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/os/periodic"
)

// keepConnections adds the connections of the kernel to the new program's flow table, and copies the state of protections. The table of the
// generation before is shared already.
func (l *loaded) keepConnections(context.Context) error {
	if len(l.found) == 0 {
		return nil
	}
	if l.running.generation != nil {
		if err := l.program.CarryStates(l.running.inherits.States, l.manifest.Staying(l.running.generation.Manifest)); err != nil {
			return err
		}
	}
	return know(l.program.Flows, l.manifest)
}

// know adds the connections of the kernel to a flow table: that of a new program, or of a generation that is returned to.
func know(open func() (*datapath.Table, error), m *manifest.Manifest) error {
	flows, err := open()
	if flows == nil || err != nil {
		return err
	}
	defer flows.Close()
	return flows.Learn(m.Protects)
}

// rejoin adds the connections that were made since to a generation that is returned to. Otherwise a packet would have to ask for each of
// them, which an ACK flood can delay. So an error does not prevent the return.
func rejoin(g *generation.Generation) error {
	if g == nil || g.Program == nil {
		return nil
	}
	return know(g.Program.Flows, g.Manifest)
}

// A handshake with a cookie ends within a roundTrip, except for losses. Protections that end rest for longer than that: they answer no SYN
// and pass all segments until the change is made or, if it fails, until they go on.
const (
	roundTrip = time.Second
	Resting   = 5 * time.Second
)

// windDown stops the protections of a generation that the next one lacks (nil: it has none) from answering SYNs, and waits for the cookies
// that were sent: after the change no program could check them.
func windDown(ctx context.Context, g *generation.Generation, next *manifest.Manifest) error {
	if g == nil || g.Program == nil {
		return nil
	}
	stay := map[int]bool{}
	if next != nil {
		for _, then := range next.Staying(g.Manifest) {
			stay[then] = true
		}
	}
	var ending []int
	for i := range g.Manifest.Protections {
		if !stay[i] {
			ending = append(ending, i)
		}
	}
	if ending == nil {
		return nil
	}
	answered, err := g.Program.Rest(ending, Resting)
	if !answered || err != nil {
		return err
	}
	periodic.Sleep(ctx, roundTrip)
	return nil
}

// RotateKeys draws a new key for the cookies of the policy that runs, and reports whether it did. Cookies that were sent remain valid. It
// is no error if nothing is loaded.
func (in Instance) RotateKeys(ctx context.Context) (rotated bool, err error) {
	err = in.change(ctx, func(l *live) (err error) {
		rotated, err = l.State.RotateKeys()
		return err
	})
	if errors.Is(err, datapath.ErrNotLoaded) {
		return false, nil
	}
	return rotated, err
}
