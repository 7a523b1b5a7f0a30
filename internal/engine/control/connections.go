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
func (t *transaction) keepConnections(context.Context) error {
	if len(t.found) == 0 {
		return nil
	}
	if t.now != nil {
		if err := t.program.CarryStates(t.inherits.States, t.manifest.Staying(t.now.Manifest)); err != nil {
			return err
		}
	}
	return know(t.program.Flows, t.manifest)
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

// rejoinNext adds the connections that were made since to a generation that is returned to. Otherwise a packet would have to ask for each of
// them, which an ACK flood can delay. So an error does not prevent the return.
func (t *transaction) rejoinNext(context.Context) error {
	if t.toProgram() {
		t.late = append(t.late, know(t.next.Program.Flows, t.next.Manifest))
	}
	return nil
}

// A handshake with a cookie ends within a roundTrip, except for losses. Protections that end rest for longer than that: they answer no SYN
// and pass all segments until the change is made or, if it fails, until they go on.
const (
	roundTrip = time.Second
	Resting   = 5 * time.Second
)

// windDown winds down what runs for what is to run.
func (t *transaction) windDown(ctx context.Context) error { return windDown(ctx, t.now, t.manifest) }

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
	err = in.change(ctx, func(t *transaction) (err error) {
		rotated, err = t.state.RotateKeys()
		return err
	})
	if errors.Is(err, datapath.ErrNotLoaded) {
		return false, nil
	}
	return rotated, err
}
