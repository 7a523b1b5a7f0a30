package control

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/hostfacts"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/manifest"
)

// keepConnections has the program know the connections that the kernel has, and has protections begin as they stand. What
// the generation before knew the program has from it already.
func (l *loaded) keepConnections(context.Context) error {
	if len(l.found) == 0 {
		return nil
	}
	if l.running.generation != nil {
		if err := l.program.CarryStates(l.running.inherits.States, samePlaces(l.manifest, l.running.generation.manifest)); err != nil {
			return err
		}
	}
	flows, err := l.program.Flows()
	if flows == nil || err != nil {
		return err
	}
	defer flows.Close()
	_, err = flows.Preload(l.protects(false))
	_, trackedErr := flows.PreloadTracked(l.protects(true))
	return errors.Join(err, trackedErr)
}

// samePlaces are the numbers of protections of services that stay, and those that they had before.
func samePlaces(now, before *manifest.Manifest) map[int]int {
	places := map[int]int{}
	for i, s := range now.Protections {
		then := slices.IndexFunc(before.Protections, func(b manifest.Protection) bool { return b.Service == s.Service })
		if then >= 0 && !s.InKernel() && !before.Protections[then].InKernel() {
			places[i] = then
		}
	}
	return places
}

// A handshake that a cookie began ends in a roundTrip, but for losses. Protections that are to end rest for longer, in
// which the change is made or, when it fails, they go on.
const (
	roundTrip = time.Second
	resting   = 5 * time.Second
)

// windDown has the protections of a generation that the next one, nil for none, has not answer no more SYNs, and waits for
// the cookies on their way: behind it nobody would know what to do with them.
func (g *generation) windDown(ctx context.Context, next *manifest.Manifest) error {
	if g == nil || g.program == nil {
		return nil
	}
	stay := map[int]bool{}
	if next != nil {
		for _, then := range samePlaces(next, g.manifest) {
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
	answered, err := g.program.Rest(ending, resting)
	if !answered || err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(roundTrip):
	}
	return nil
}

// protects tells which ports of TCP are protected in a mode.
func (l *loaded) protects(router bool) func(port uint16) bool {
	return func(port uint16) bool {
		return slices.ContainsFunc(l.compiled.Program.Protections, func(s ir.Protection) bool {
			return s.Router == router && hostfacts.Serves(s.Ports, port)
		})
	}
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
