// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/fleet/node"
	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/internal/host/allowlist"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/os/periodic"
)

// Intervals. At fleetLook the daemon checks whether the host has joined or left a fleet, at setLook it checks into which set bans are entered, and at
// fleetStatus it records the state of the node.
const (
	fleetLook   = time.Second
	setLook     = 100 * time.Millisecond
	fleetStatus = 2 * time.Second
)

// Fleet is this host's part of a fleet, while it has joined one.
type Fleet struct {
	in      control.Instance
	state   string
	report  func(Event)
	observe Observe
	enact   Enact

	mu    sync.Mutex
	agent *node.Agent // nil while this host is in no fleet
	set   string      // the set of the bans that are shared; "": not known yet
}

// Observe calls tell periodically until ctx ends, with a summary of the traffic that this host receives.
type Observe func(ctx context.Context, tell func(*wire.Summary))

// Enact applies the policies of the fleet until ctx ends.
type Enact func(ctx context.Context, file *node.File, agent *node.Agent)

// NewFleet returns the fleet part of an instance with a state directory. observe makes the summaries for the hubs. A node that has a key for policies
// applies the fleet's policies with enact. report is called with each event.
func NewFleet(in control.Instance, state string, observe Observe, enact Enact, report func(Event)) *Fleet {
	return &Fleet{in: in, state: state, observe: observe, enact: enact, report: report}
}

// View returns the view of the fleet that a hub has sent. It is nil when this host is in no fleet, and when no hub has sent a view for 30 seconds.
func (f *Fleet) View() *wire.View {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.agent == nil {
		return nil
	}
	return f.agent.View()
}

// Status returns the state of the node. It is nil when this host is in no fleet.
func (f *Fleet) Status() *node.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.agent == nil {
		return nil
	}
	s := f.agent.Status()
	return &s
}

// Run takes part in the fleet while the host is a member, until ctx ends. After an error Run reports the error and tries again. Meanwhile the daemon
// works without the fleet.
func (f *Fleet) Run(ctx context.Context) error {
	told := ""
	periodic.RunPaced(ctx, func() time.Duration {
		err := f.once(ctx)
		if errors.Is(err, node.ErrNotJoined) {
			_ = facts.KeepFleet(filepath.Base(f.in.Dir), nil) // removing cannot fail
		}
		if errors.Is(err, node.ErrNotJoined) || ctx.Err() != nil {
			err = nil
		}
		if err != nil && err.Error() != told {
			f.report(Event{Err: err})
		}
		if told = ""; err != nil {
			told = err.Error()
		}
		return fleetLook
	})
	return nil
}

// once takes part in the fleet until the host leaves the fleet or joins another.
func (f *Fleet) once(ctx context.Context) error {
	file, err := node.Read(f.state)
	if err != nil {
		return err
	}
	was, err := os.Stat(node.Path(f.state))
	if err != nil {
		return err
	}
	agent, err := node.New(file, &fleetHost{fleet: f, set: file.Set}, func(text string, err error) { f.report(Event{Text: text, Err: err}) })
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	f.take(agent)
	var running sync.WaitGroup
	defer f.take(nil)
	defer running.Wait()
	defer cancel()
	running.Go(func() { f.follow(ctx, agent) })
	running.Go(func() { f.observe(ctx, agent.Report) })
	if file.Policies != "" {
		running.Go(func() { f.enact(ctx, file, agent) })
	}
	ended := make(chan error, 1)
	running.Go(func() { ended <- agent.Run(ctx) })
	var saved node.Status
	var known []netip.Addr
	for {
		select {
		case err := <-ended:
			return err
		case <-time.After(periodic.Left(fleetStatus)):
		}
		if is, err := os.Stat(node.Path(f.state)); err != nil || !os.SameFile(is, was) {
			return nil
		}
		if s := agent.Status(); s.News(&saved) {
			if err := s.Save(f.state); err != nil {
				f.report(Event{Err: err})
			}
			saved = s
		}
		if now := agent.Fleet(); !slices.Equal(now, known) {
			if err := facts.KeepFleet(filepath.Base(f.in.Dir), now); err != nil {
				f.report(Event{Err: err})
			}
			known = now
		}
	}
}

func (f *Fleet) take(a *node.Agent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.agent, f.set = a, ""
}

// follow tells the agent which bans were made or lifted on this host, by any command.
func (f *Fleet) follow(ctx context.Context, to *node.Agent) {
	if f.in.Bans == nil {
		return
	}
	from := f.in.Bans.Follow()
	defer from.Close()
	told := ""
	periodic.RunPaced(ctx, func() time.Duration {
		set := f.shared()
		if set == "" {
			return setLook
		}
		records, whole, err := from.Next()
		if err != nil && err.Error() != told {
			told = err.Error()
			f.report(Event{Err: fmt.Errorf("fleet: bans of this host are not shared: %w", err)})
		}
		if list := localBans(records, set); len(list) > 0 {
			to.Local(list, whole)
		}
		if len(records) == 0 {
			from.Wait(ctx)
		}
		return 0
	})
}

func (f *Fleet) shared() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.set
}

// localBans returns the changes of a set. Changes that the fleet requested are marked.
func localBans(records []ban.Record, set string) (list []node.Local) {
	for _, r := range records {
		if r.Set != set {
			continue
		}
		local := node.Local{Prefix: r.Prefix, Gone: r.Gone, Start: r.Start, Why: r.Text(), Manual: r.Origin == ban.Manual, Fleet: r.Origin == ban.Fleet}
		if r.Until != ban.Never {
			local.End = r.Until
		}
		list = append(list, local)
	}
	return list
}

// fleetHost enters bans of other nodes into a set of the running policy.
type fleetHost struct {
	fleet    *Fleet
	set      string
	capacity int // of the set, in entries
}

// Capacity returns the largest number of entries of the set.
func (h *fleetHost) Capacity() int { return h.capacity }

// Block bans prefixes with the rank of programs. Bans of this rank give way to bans by people.
func (h *fleetHost) Block(ctx context.Context, bans []node.Ban) (map[netip.Prefix]error, error) {
	var list []ban.Ban
	for _, b := range bans {
		is := ban.Ban{Prefix: b.Prefix, Until: b.Until, Why: b.Origin, Origin: ban.Fleet, Replace: true}
		if b.Why != "" {
			is.Why += ": " + b.Why
		}
		if b.Origin == "" { // a ban of this host
			is = ban.Read(b.Prefix, "", b.Why, b.Until)
			is.Replace = true
		}
		list = append(list, is)
	}
	fill, err := h.fleet.in.Block(ctx, h.set, list)
	var some ban.Refusals
	if err != nil && !errors.As(err, &some) {
		return nil, err
	}
	refused := map[netip.Prefix]error{}
	for _, b := range list {
		refused[b.Prefix] = node.ErrKept
	}
	for _, i := range fill.Changed {
		delete(refused, list[i].Prefix)
	}
	for _, r := range some {
		refused[list[r.Index].Prefix] = r.Err
	}
	return refused, nil
}

// Unblock ends bans of prefixes. If all is true it ends all bans, otherwise only bans by other nodes.
func (h *fleetHost) Unblock(ctx context.Context, prefixes []netip.Prefix, all bool) ([]netip.Prefix, error) {
	of := ban.Owner{Origin: ban.Fleet}
	if all {
		of = ban.Owner{}
	}
	fill, err := h.fleet.in.UnblockOf(ctx, h.set, of, prefixes)
	var not ban.Refusals
	if err != nil && !errors.As(err, &not) {
		return nil, err
	}
	var were []netip.Prefix
	for _, i := range fill.Changed {
		were = append(were, prefixes[i])
	}
	return were, nil
}

// Never returns a function that reports whether a prefix must not be banned. These are the prefixes that no program may ban, and the addresses of
// upstream routers: without the sessions to these routers no announcement can be withdrawn.
func (h *fleetHost) Never(ctx context.Context) (func(netip.Prefix) bool, error) {
	set, err := h.fleet.in.DynamicSet(ctx, h.set)
	if err != nil {
		return nil, err
	}
	running, err := h.fleet.in.RunningPolicy(ctx)
	if err != nil {
		return nil, err
	}
	h.fleet.mu.Lock()
	h.fleet.set = set.Name
	h.fleet.mu.Unlock()
	h.capacity = set.Max
	whom := slices.Clone(running.Allowlist)
	if u := running.Daemon.Upstream; u != nil {
		for _, p := range u.Peers {
			whom = append(whom, netip.PrefixFrom(p.Address, p.Address.BitLen()))
		}
	}
	never := allowlist.Now(whom)
	return func(p netip.Prefix) bool { return never.Why(p) != "" }, nil
}
