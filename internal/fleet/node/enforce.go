// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// The largest number of changes that the enforcer gets in one call, and the wait after an error.
const (
	maxEnforce = 8192
	errorWait  = 2 * time.Second
)

// slack is the greatest difference between two ends that needs no change, because the kernel's set counts in seconds.
const slack = time.Second

// changes are the pending changes on this host, in the order of their execution.
type changes struct {
	lift []netip.Prefix // bans of other nodes to end
	all  []netip.Prefix // bans to end, including those of this host
	bans []Ban          // to enter
}

// enforce applies the records to the host.
func (a *Agent) enforce(ctx context.Context) {
	for more := true; more && ctx.Err() == nil; {
		var c changes
		c, more = a.due()
		if err := a.apply(ctx, c); err != nil {
			a.later(c)
			if ctx.Err() == nil {
				a.warn(err)
			}
			return
		}
	}
}

// due returns the pending changes, and whether there may be more.
func (a *Agent) due() (c changes, more bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if a.never == nil || now.Before(a.paused) {
		return c, false
	}
	n := 0
	c.bans = make([]Ban, 0, min(len(a.prefixes.dirty), maxEnforce))
	for p := range a.prefixes.dirty {
		if n++; n > maxEnforce {
			return c, true
		}
		delete(a.prefixes.dirty, p)
		a.change(p, now, &c)
	}
	return c, false
}

// change adds the pending changes for a prefix. at is a time of this host's clock.
func (a *Agent) change(p netip.Prefix, at time.Time, c *changes) {
	r, now := a.table.Get(p), a.clock.at(at)
	s := a.prefixes.of(p)
	own, had := s.own, s.entered
	lifted := s.owed || own != nil && r.Lifted(a.file.Name, a.saidAt(own))
	if lifted {
		a.prefixes.setOwed(p, false)
		a.prefixes.setOwn(p, nil)
		own = nil
		c.all = append(c.all, p)
	}
	e, ok := r.Effect(now, a.file.Name, a.file.Reporters)
	end := at.Add(e.Until.Sub(now))
	if ok && a.never(p) {
		ok = false
		if !s.allowlisted {
			a.prefixes.setAllowlisted(p, true)
			a.counts.Refused++
		}
	}
	switch {
	case !ok && had && len(r.Statements) == 0 && !a.never(p): // the ban is from before a restart of the daemon, and its record is not received yet
	case !ok && had:
		a.forget(p)
		if !lifted {
			c.lift = append(c.lift, p)
		}
		if own != nil && !own.Manual && !own.End.IsZero() { // the fleet's ban had replaced this host's ban, which must be entered again
			c.bans = append(c.bans, Ban{Prefix: p, Until: own.End, Why: own.Why})
		}
	case !ok:
		a.share.free(p)
	case ok && own != nil && own.Manual: // a ban by a person is never changed; when it ends, the prefix is checked again
	case ok && own != nil && (own.End.IsZero() || !now.Add(time.Until(own.End)).Before(e.Until)):
	case ok && (lifted || !had || s.until.IsZero() || end.Sub(s.until).Abs() > slack):
		_, known := a.share.crowded[p]
		if !a.share.take(p, e.Origin) {
			if !known {
				a.counts.Refused++
			}
			return
		}
		c.bans = append(c.bans, Ban{Prefix: p, Until: end, Origin: e.Origin, Why: e.Reason})
	}
}

// forget records that another node's ban of a prefix has left this host.
func (a *Agent) forget(p netip.Prefix) {
	a.prefixes.leave(p)
	a.share.free(p)
}

// saidAt returns the number of the statement about an own ban, or the number that the statement would get.
func (a *Agent) saidAt(b *ownBan) uint64 {
	if b.statement.Seq != 0 {
		return b.statement.Seq
	}
	if since := time.Since(b.Start.Round(0)); since > fresh {
		return uint64(max(a.clock.now().Add(-since).UnixMicro(), 0))
	}
	return wire.NextSequence(a.clock.now(), 0)
}

// apply passes the changes to the enforcer.
func (a *Agent) apply(ctx context.Context, c changes) error {
	if err := a.unblock(ctx, c.all, true); err != nil {
		return err
	}
	if err := a.unblock(ctx, c.lift, false); err != nil {
		return err
	}
	return a.block(ctx, c.bans)
}

func (a *Agent) block(ctx context.Context, bans []Ban) error {
	if len(bans) == 0 {
		return nil
	}
	for i := range bans {
		if bans[i].Origin != "" {
			bans[i].Origin, bans[i].Why = a.texts.of(bans[i].Origin, bans[i].Why)
		}
	}
	refused, err := a.enforcer.Block(ctx, bans)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told = ""
	for _, b := range bans {
		switch {
		case errors.Is(refused[b.Prefix], ErrKept):
			if b.Origin != "" {
				a.forget(b.Prefix)
				a.prefixes.setKept(b.Prefix, true)
			}
		case refused[b.Prefix] != nil:
			if _, known := a.share.crowded[b.Prefix]; !known {
				a.counts.Refused++
			}
			if !a.prefixes.of(b.Prefix).entered && b.Origin != "" {
				a.share.refuse(b.Prefix)
			}
		case b.Origin != "":
			a.counts.Received++
			a.prefixes.enter(b.Prefix, b.Until)
		}
	}
	return nil
}

func (a *Agent) unblock(ctx context.Context, lifts []netip.Prefix, all bool) error {
	if len(lifts) == 0 {
		return nil
	}
	a.mu.Lock()
	for _, p := range lifts { // this must be recorded before the log of bans reports the change
		a.prefixes.undo(p)
	}
	a.mu.Unlock()
	were, err := a.enforcer.Unblock(ctx, lifts, all)
	is := map[netip.Prefix]bool{}
	for _, p := range were {
		is[p] = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range lifts {
		if !is[p] {
			a.prefixes.undoneTold(p)
		}
	}
	return err
}

// later makes the changes due again after a while.
func (a *Agent) later(c changes) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.paused = time.Now().Add(errorWait)
	for _, b := range c.bans {
		a.prefixes.dirty.add(b.Prefix)
	}
	for _, p := range c.lift {
		a.prefixes.dirty.add(p)
		a.prefixes.enter(p, time.Time{}) // this schedules the ban to be ended, or entered again
	}
	for _, p := range c.all {
		a.prefixes.dirty.add(p)
		a.prefixes.setOwed(p, true)
	}
}

// texts limits the number of different reasons, because the kernel's set can store only 255 (addrs.Entry).
type texts struct{ known map[string]bool }

// The largest number of reasons, and of node names among them.
const (
	maxReasons = 80
	maxTexts   = 160
)

// others is the text that replaces the names of nodes when there are too many.
const others = "-"

// of returns the origin and the reason to store for a ban. It shortens them when there are many different texts.
func (t *texts) of(origin, why string) (string, string) {
	if t.known == nil {
		t.known = map[string]bool{}
	}
	full := origin + ": " + why
	switch {
	case t.known[full], len(t.known) < maxReasons:
		t.known[full] = true
		return origin, why
	case t.known[origin], len(t.known) < maxTexts:
		t.known[origin] = true
		return origin, ""
	}
	return others, ""
}
