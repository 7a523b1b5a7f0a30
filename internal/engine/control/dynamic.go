package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/floodwall/floodwall/internal/compile/image"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/addrs"
)

// fillDynamic fills the new program's dynamic sets before it runs: with the entries of the sets of the same name, and with the host's own
// addresses.
func (l *loaded) fillDynamic(context.Context) error {
	if len(l.xdp.Dynamic) == 0 {
		return nil
	}
	memory, release, err := l.program.Memory(ban.Maps...)
	if err != nil {
		return err
	}
	defer release()
	fresh, err := addrs.OpenDynamic(xdpgen.DynamicMemory(memory))
	if err != nil {
		return err
	}
	for _, s := range l.manifest.Sets {
		if s.Dynamic < 0 {
			continue
		}
		if err := l.fillSet(s, fresh); err != nil {
			return err
		}
	}
	return nil
}

// fillEnds says in the new program what this host has and answers to, where the program answers.
func (l *loaded) fillEnds(context.Context) error { return fillEnds(l.program, l.manifest.Devices) }

// fillEnds says in a program that is not attached yet what this host has and answers to by these devices.
func fillEnds(p *datapath.Program, devices []string) error {
	memory, release, err := p.Memory(image.HostEnds)
	if err != nil {
		return err
	}
	defer release()
	return ban.WriteEnds(memory[image.HostEnds], devices)
}

// fillSet fills one of the sets, which are empty.
func (l *loaded) fillSet(s manifest.Set, sets *addrs.Dynamic) error {
	if s.Local {
		return ban.FillLocal(sets, s.Dynamic)
	}
	to := sets.Sets[s.Dynamic]
	if done, err := l.copySet(s, to); done || err != nil {
		return err
	}
	now, refused := ban.Now(), 0
	for _, b := range l.kept[s.Name] {
		e := ban.EntryOf(b, now)
		err := to.Insert(e, now)
		if err != nil && !l.saved[s.Name] && !e.Automatic {
			return ban.BlockError(s, b.Prefix, err)
		}
		if err != nil {
			refused++
		}
	}
	if refused > 0 {
		l.notRestored(s.Name, refused)
	}
	l.bans += to.Count(now)
	return nil
}

// copySet copies the entries of the set of the same name from the XDP program before. done is false if there is none.
func (l *loaded) copySet(s manifest.Set, to *addrs.DynamicSet) (done bool, err error) {
	if l.running.generation == nil || l.running.generation.Program == nil || l.running.foreign != nil {
		return false, nil
	}
	was, ok := l.running.generation.Manifest.Set(s.Name)
	if !ok || was.Dynamic < 0 {
		return false, nil
	}
	before, err := ban.Open(l.running.generation.Program)
	if before == nil || err != nil {
		return true, err
	}
	now := ban.Now()
	if err := to.Copy(before.Sets[was.Dynamic], now); err != nil {
		return true, fmt.Errorf("%s: set %q cannot take over the %d entries it has now: %w; raise its max above %d",
			l.compiled.Policy.File, s.Name, before.Sets[was.Dynamic].Count(now), err, s.Max)
	}
	l.bans += to.Count(now)
	return true, nil
}

// RefreshLocal brings the set `local` of what runs to the addresses that the host has now, and what it says of the host's devices to their
// addresses. Nothing loaded is no error.
func (in Instance) RefreshLocal(ctx context.Context) (added, removed int, err error) {
	err = in.change(ctx, func(l *live) error {
		var errs []error
		for _, g := range l.All() { // the one that decides last: its changes are reported
			added, removed, err = g.RefreshLocal()
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	if errors.Is(err, datapath.ErrNotLoaded) {
		return 0, 0, nil
	}
	return added, removed, err
}
