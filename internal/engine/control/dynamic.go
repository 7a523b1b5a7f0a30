// SPDX-License-Identifier: Apache-2.0

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

// fillDynamic fills the dynamic sets of the new program before the program runs. It adds the entries of the present sets of the same names, and the
// host's own addresses.
func (t *transaction) fillDynamic(context.Context) error {
	if len(t.xdp.Dynamic) == 0 {
		return nil
	}
	memory, release, err := t.program.Memory(ban.Maps...)
	if err != nil {
		return err
	}
	defer release()
	fresh, err := addrs.OpenDynamic(xdpgen.DynamicMemory(memory))
	if err != nil {
		return err
	}
	for _, s := range t.manifest.Sets {
		if s.Dynamic < 0 {
			continue
		}
		if err := t.fillSet(s, fresh); err != nil {
			return err
		}
	}
	return nil
}

// fillEnds writes the addresses of this host into the new program, if the program sends answers.
func (t *transaction) fillEnds(context.Context) error { return fillEnds(t.program, t.manifest.Devices) }

// fillEnds writes this host's addresses, and the MAC addresses of the devices, into a program that is not attached yet.
func fillEnds(p *datapath.Program, devices []string) error {
	memory, release, err := p.Memory(image.HostEnds)
	if err != nil {
		return err
	}
	defer release()
	return ban.WriteEnds(memory[image.HostEnds], devices)
}

// fillSet fills one set, which must be empty.
func (t *transaction) fillSet(s manifest.Set, sets *addrs.Dynamic) error {
	if s.Local {
		return ban.FillLocal(sets, s.Dynamic)
	}
	to := sets.Sets[s.Dynamic]
	if done, err := t.copySet(s, to); done || err != nil {
		return err
	}
	now, refused := ban.Now(), 0
	for _, b := range t.kept[s.Name] {
		e := ban.EntryOf(b, now)
		err := to.Insert(e, now)
		if err != nil && !t.saved[s.Name] && !e.Automatic {
			return ban.BlockError(s, b.Prefix, err)
		}
		if err != nil {
			refused++
		}
	}
	if refused > 0 {
		t.notRestored(s.Name, refused)
	}
	t.bans += to.Count(now)
	return nil
}

// copySet copies the entries of the set with the same name in the previous XDP program. `done` is false if there is no such set.
func (t *transaction) copySet(s manifest.Set, to *addrs.DynamicSet) (done bool, err error) {
	if t.now == nil || t.now.Program == nil || t.foreign != nil {
		return false, nil
	}
	was, ok := t.now.Manifest.Set(s.Name)
	if !ok || was.Dynamic < 0 {
		return false, nil
	}
	before, err := ban.Open(t.now.Program)
	if before == nil || err != nil {
		return true, err
	}
	now := ban.Now()
	if err := to.Copy(before.Sets[was.Dynamic], now); err != nil {
		return true, fmt.Errorf("%s: set %q cannot take over the %d entries it has now: %w; raise its max above %d",
			t.compiled.Policy.File, s.Name, before.Sets[was.Dynamic].Count(now), err, s.Max)
	}
	t.bans += to.Count(now)
	return true, nil
}

// RefreshLocal updates the set `local` of the running policy to the host's present addresses. It also updates the program's data about the host's
// devices. It returns no error if nothing is loaded.
func (in Instance) RefreshLocal(ctx context.Context) (added, removed int, err error) {
	err = in.change(ctx, func(t *transaction) error {
		var errs []error
		for _, g := range t.live.All() { // the generation in force comes last, so its numbers are returned
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
