package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/floodwall/floodwall/internal/addrs"
	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/hostfacts"
)

// RefreshLocal brings the set `local` of what runs to the addresses that the host has now. Nothing loaded is no error.
func (in Instance) RefreshLocal(ctx context.Context) (added, removed int, err error) {
	err = in.change(ctx, func(l *live) error {
		for _, g := range l.all() { // the one that decides last: its changes are reported
			if added, removed, err = g.refreshLocal(); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, datapath.ErrNotLoaded) {
		return 0, 0, nil
	}
	return added, removed, err
}

func (g *generation) refreshLocal() (added, removed int, err error) {
	if g.program == nil {
		return 0, 0, nil
	}
	dynamic, err := openDynamic(g.program)
	if err != nil || dynamic == nil {
		return 0, 0, err
	}
	for _, e := range g.manifest.Sets {
		if e.Local {
			return updateLocal(dynamic.Sets[e.Dynamic])
		}
	}
	return 0, 0, nil
}

// updateLocal enters first and removes then: at no moment is an address missing that the host has.
func updateLocal(set *addrs.DynamicSet) (added, removed int, err error) {
	now := monotonic()
	own, err := hostfacts.OwnAddresses()
	if err != nil {
		return 0, 0, err
	}
	is := map[netip.Prefix]bool{}
	for _, a := range own {
		is[netip.PrefixFrom(a, a.BitLen())] = true
	}
	var gone []netip.Prefix
	for entry := range set.All(now) {
		if !is[entry.Prefix] {
			gone = append(gone, entry.Prefix)
		}
		delete(is, entry.Prefix)
	}
	for p := range is {
		if err := set.Insert(addrs.Entry{Prefix: p}, now); err != nil {
			return added, 0, fmt.Errorf("own address %s: %w", p.Addr(), err)
		}
		added++
	}
	for _, p := range gone {
		set.Delete(p, now)
	}
	return added, len(gone), nil
}
