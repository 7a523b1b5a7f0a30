package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/addrs"
	"github.com/floodwall/floodwall/internal/cost"
	"github.com/floodwall/floodwall/internal/datapath"
)

// followWait is how long Watch waits for further changes after one: an interface that comes up changes several
// addresses at once.
const followWait = 50 * time.Millisecond

// Event is something that Watch did, or could not do.
type Event struct {
	Text string
	Err  error
}

// trialLook is how often Watch looks for a trial that has ended.
const trialLook = time.Second

// proxyLook is how often Watch looks whether the last connection that SYNPROXY began has ended: the kernel hands out all of
// conntrack for it.
const proxyLook = time.Minute

// Watch keeps up with the host until ctx ends. It
//   - puts back what others remove of the policy in force (Repair);
//   - enters the host's own addresses into the set `local` of the XDP program as they change: netfilter asks the kernel;
//   - removes what is left of a trial that nobody confirmed, and of connections that SYNPROXY began when they are over;
//   - gives protections a new key for cookies every hour;
//   - bans sources that exceed limits with `ban`;
//   - moves rules to where they cost least by the present model of costs. A nil costs leaves rules where they are.
//
// report is told what was done, and errors, after which Watch goes on. Several goroutines call it, one at a time. Watch
// returns a *WatchedError while another process watches the instance.
func (in Instance) Watch(ctx context.Context, costs func() *cost.Model, report func(Event)) error {
	end, err := in.alone()
	if err != nil {
		return err
	}
	defer end()
	var one sync.Mutex
	inTurn := func(e Event) {
		one.Lock()
		defer one.Unlock()
		report(e)
	}
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	beside.Go(func() { in.keep(ctx, inTurn) })
	beside.Go(func() { in.ban(ctx, inTurn) })
	if costs != nil {
		beside.Go(func() { in.place(ctx, costs, inTurn) })
	}
	return in.follow(ctx, inTurn)
}

// follow keeps up with the host's addresses and with trials until ctx ends.
func (in Instance) follow(ctx context.Context, report func(Event)) error {
	updates := make(chan netlink.AddrUpdate, 64)
	lost := make(chan error, 1)
	options := netlink.AddrSubscribeOptions{ErrorCallback: func(err error) {
		select {
		case lost <- err:
		default:
		}
	}}
	if err := netlink.AddrSubscribeWithOptions(updates, ctx.Done(), options); err != nil {
		return fmt.Errorf("watching own addresses: %w", err)
	}
	look := time.NewTicker(trialLook)
	defer look.Stop()
	rotate := time.NewTicker(keyLife)
	defer rotate.Stop()
	begun := time.NewTicker(proxyLook)
	defer begun.Stop()
	keep := time.NewTicker(keepLook)
	defer keep.Stop()
	defer in.syncBans()
	due := time.After(0) // addresses may have changed since the policy was applied
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-lost:
			if ctx.Err() != nil { // its end closes the socket, too
				return nil
			}
			return fmt.Errorf("watching own addresses: %w", err)
		case _, open := <-updates:
			if !open {
				return nil
			}
			if due == nil {
				due = time.After(followWait)
			}
		case <-due:
			due = nil
			in.followed(ctx, report)
		case <-look.C:
			in.settled(ctx, report)
		case <-rotate.C:
			in.rotated(ctx, report)
		case <-begun.C:
			in.released(ctx, report)
		case <-keep.C:
			if err := in.KeepBans(ctx); err != nil {
				report(Event{Err: err})
			}
		}
	}
}

// followed brings the addresses up to date.
func (in Instance) followed(ctx context.Context, report func(Event)) {
	added, removed, err := in.RefreshLocal(ctx)
	if added+removed > 0 || err != nil {
		report(Event{fmt.Sprintf("own addresses: %d added, %d removed", added, removed), err})
	}
}

// settled cleans up after a trial.
func (in Instance) settled(ctx context.Context, report func(Event)) {
	number, err := in.Settle(ctx)
	if number > 0 || err != nil {
		report(Event{fmt.Sprintf("the trial of generation %d ended unconfirmed: the policy before is back", number), err})
	}
}

// released removes what is left for connections that SYNPROXY began, when they are over.
func (in Instance) released(ctx context.Context, report func(Event)) {
	released, err := in.Release(ctx)
	if released || err != nil {
		report(Event{"the last connection that SYNPROXY began has ended: its table is removed", err})
	}
}

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
	own, err := ownAddresses()
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
