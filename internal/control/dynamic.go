package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/addrs"
	xdpgen "github.com/floodwall/floodwall/internal/codegen/xdp"
	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/hostfacts"
	"github.com/floodwall/floodwall/internal/xdp"
)

// dynamicMaps are the maps of dynamic sets.
var dynamicMaps = []string{xdp.DynamicInfo, xdp.Dynamic, xdp.DynamicTexts, xdp.DynamicWhy}

// monotonic is the clock of expiries: seconds of CLOCK_MONOTONIC, as the datapath reads it.
func monotonic() uint32 { return uint32(monotonicTime() / time.Second) }

func monotonicTime() time.Duration {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return time.Duration(t.Nano())
}

// openDynamic opens the dynamic sets of a generation, nil when it has none. They are valid until the generation is
// closed.
func openDynamic(g *datapath.Generation) (*addrs.Dynamic, error) {
	memory, err := g.Memory(dynamicMaps...)
	if err != nil {
		return nil, err
	}
	if memory[xdp.Dynamic] == nil || memory[xdp.DynamicTexts] == nil {
		return nil, nil
	}
	return addrs.OpenDynamic(xdpgen.DynamicMemory(memory))
}

// fillDynamic gives the new program's dynamic sets what they must hold before it runs: what the sets of the same name
// held, and the host's own addresses.
func (l *loaded) fillDynamic(context.Context) error {
	if len(l.xdp.Dynamic) == 0 {
		return nil
	}
	memory, release, err := l.program.Memory(dynamicMaps...)
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
		if err := l.fillSet(s, fresh.Sets[s.Dynamic]); err != nil {
			return err
		}
	}
	return nil
}

func (l *loaded) fillSet(s setEntry, to *addrs.DynamicSet) error {
	if s.Local {
		return fillLocal(to)
	}
	if done, err := l.copySet(s, to); done || err != nil {
		return err
	}
	now, refused := monotonic(), 0
	for _, b := range l.kept[s.Name] {
		e := addrs.Entry{Prefix: b.Prefix, Why: b.Why, Automatic: b.Origin == Automatic}
		if b.Expires != nil {
			e.Expiry = expiry(now, time.Duration(*b.Expires*float64(time.Second)), 0)
		}
		err := to.Insert(e, now)
		if err != nil && !l.saved[s.Name] && !e.Automatic {
			return blockError(s, b.Prefix, err)
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

// copySet copies what the set of the same name holds in the XDP program before, if there is one.
func (l *loaded) copySet(s setEntry, to *addrs.DynamicSet) (done bool, err error) {
	if l.running.generation == nil || l.running.generation.program == nil || l.running.foreign != nil {
		return false, nil
	}
	was, ok := l.running.generation.manifest.set(s.Name)
	if !ok || was.Dynamic < 0 {
		return false, nil
	}
	before, err := openDynamic(l.running.generation.program)
	if before == nil || err != nil {
		return true, err
	}
	now := monotonic()
	if err := to.Copy(before.Sets[was.Dynamic], now); err != nil {
		return true, fmt.Errorf("%s: set %q cannot take over the %d entries it has now: %w; raise its max above %d",
			l.compiled.Policy.File, s.Name, before.Sets[was.Dynamic].Count(now), err, s.Max)
	}
	l.bans += to.Count(now)
	return true, nil
}

// fillLocal enters the host's own addresses.
func fillLocal(to *addrs.DynamicSet) error {
	own, err := hostfacts.OwnAddresses()
	if err != nil {
		return err
	}
	for _, a := range own {
		err := to.Insert(addrs.Entry{Prefix: netip.PrefixFrom(a, a.BitLen())}, monotonic())
		if errors.Is(err, addrs.ErrFull) {
			return fmt.Errorf("this host has more than %d addresses of its own, too many for `local`", to.Capacity())
		}
		if err != nil {
			return fmt.Errorf("own address %s: %w", a, err)
		}
	}
	return nil
}
