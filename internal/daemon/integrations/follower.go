// SPDX-License-Identifier: Apache-2.0

// This file bans the senders of packets for which a Suricata on this host raises alerts. In: the alerts in Suricata's eve.json. Out: entries of a
// dynamic set.
//
// Read follower.go first. tail.go follows the file, alert.go parses a line, notes.go reports the lines that lead to no ban.

package integrations

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/host/allowlist"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/policy"
)

// SuricataSets contains the dynamic sets that an AlertFollower writes to. control.Instance implements it.
type SuricataSets interface {
	RunningPolicy(ctx context.Context) (control.RunningPolicy, error)
	Block(ctx context.Context, set string, bans []ban.Ban) (control.Fill, error)
}

// AlertFollower bans addresses by the alerts in the file that the running policy names.
type AlertFollower struct {
	Sets   SuricataSets
	Report func(text string, err error) // called with each action and each error

	of      policy.Suricata
	key     uint64 // the key of the policy for which `known` is valid
	tail    *tail
	waiting map[netip.Prefix]ban.Ban // bans that are not entered yet
	known   map[netip.Prefix]ban.Ban // bans that are entered: further alerts about them need no action
	failed  string                   // the last error, "" when it has disappeared
	notes   notes
}

// The times and limits of an AlertFollower.
const (
	renew       = 10 * time.Second // a ban is entered again when its end becomes later by at least this time
	mostWaiting = 1000             // the most bans that are entered at once
	mostKnown   = 100_000
)

// Run follows the running policies until ctx ends.
func (f *AlertFollower) Run(ctx context.Context) error {
	defer f.stop()
	periodic.Run(ctx, look, func() {
		switch err := f.step(ctx); {
		case err == nil:
			f.failed = ""
		case errors.Is(err, datapath.ErrLocked): // another command changes the policy: the next step comes soon
		case ctx.Err() == nil && err.Error() != f.failed:
			f.failed = err.Error()
			f.Report("", err)
		}
	})
	return nil
}

func (f *AlertFollower) stop() {
	if f.tail != nil {
		f.tail.close()
	}
	*f = AlertFollower{Sets: f.Sets, Report: f.Report, failed: f.failed}
}

// step performs the actions that are due.
func (f *AlertFollower) step(ctx context.Context) error {
	w, err := f.Sets.RunningPolicy(ctx)
	switch {
	case errors.Is(err, datapath.ErrNotLoaded), err == nil && w.Daemon.Suricata == nil:
		f.stop()
		return nil
	case err != nil:
		return err
	}
	of := *w.Daemon.Suricata
	if f.tail == nil || f.of.Eve != of.Eve {
		f.stop()
		f.tail, f.waiting, f.notes = &tail{path: of.Eve}, map[netip.Prefix]ban.Ban{}, newNotes()
	}
	if f.key != w.Key || f.known == nil {
		f.key, f.known = w.Key, map[netip.Prefix]ban.Ban{}
	}
	f.of = of
	defer func() { f.notes.tell(time.Now(), f.Report) }()
	return f.follow(ctx, w.Allowlist)
}

// follow reads to the end of the file. Whenever many bans wait, it enters them before it continues.
func (f *AlertFollower) follow(ctx context.Context, spare []netip.Prefix) error {
	full := func() bool { return len(f.waiting) >= mostWaiting || ctx.Err() != nil }
	for {
		if err := f.enter(ctx, spare); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		opened := f.tail.file != nil
		err := f.tail.read(f.take, full)
		if !opened && f.tail.file != nil {
			f.Report("suricata: follows "+f.of.Eve, nil)
		}
		f.notes.invalid += f.tail.skipped
		f.tail.skipped = 0
		if err != nil {
			return errors.Join(fmt.Errorf("suricata: %w", err), f.enter(ctx, spare))
		}
		if len(f.waiting) == 0 {
			return nil
		}
	}
}

// take processes a line of the file.
func (f *AlertFollower) take(line []byte) {
	now := time.Now()
	b, why, err := read(line, f.of, now)
	switch {
	case err != nil:
		f.notes.invalid++
	case why != "":
		f.notes.ignored[why]++
	case b.Prefix.IsValid():
		if was, ok := f.known[b.Prefix]; !ok || b.Until.Sub(was.Until) >= renew {
			f.waiting[b.Prefix] = b
		}
	}
}

// enter enters the waiting bans, except for prefixes that no program may ban. After a failure the bans continue to wait.
func (f *AlertFollower) enter(ctx context.Context, spare []netip.Prefix) error {
	if len(f.waiting) == 0 {
		return nil
	}
	now, never := time.Now(), allowlist.Now(spare)
	var bans []ban.Ban
	for p, b := range f.waiting {
		if why := never.Why(p); why != "" {
			f.notes.ignored[addrs.PrefixText(p)+" "+why]++
			delete(f.waiting, p)
		} else if b.Until.Sub(now) < time.Second {
			delete(f.waiting, p)
		} else {
			bans = append(bans, b)
		}
	}
	if len(bans) == 0 {
		return nil
	}
	slices.SortFunc(bans, func(a, b ban.Ban) int { return a.Prefix.Addr().Compare(b.Prefix.Addr()) })
	var refused ban.Refusals
	if _, err := f.Sets.Block(ctx, f.of.Set, bans); err != nil && !errors.As(err, &refused) {
		return fmt.Errorf("suricata: %w", err)
	}
	for _, r := range refused {
		f.notes.ignored["set "+f.of.Set+" has no space: raise its max and apply"]++
		delete(f.waiting, bans[r.Index].Prefix)
	}
	f.remember()
	return nil
}

// remember records the waiting bans as entered, and reports the new ones.
func (f *AlertFollower) remember() {
	if len(f.known) > mostKnown {
		clear(f.known)
	}
	var fresh []ban.Ban
	for p, b := range f.waiting {
		if was, ok := f.known[p]; !ok || was.Until.Before(time.Now()) {
			fresh = append(fresh, b)
		}
		f.known[p] = b
	}
	clear(f.waiting)
	if len(fresh) == 0 {
		return
	}
	first := slices.MinFunc(fresh, func(a, b ban.Ban) int { return a.Prefix.Addr().Compare(b.Prefix.Addr()) })
	text := fmt.Sprintf("suricata: banned %s for %v: %s", addrs.PrefixText(first.Prefix), time.Until(first.Until).Round(time.Second), first.Why)
	if len(fresh) > 1 {
		text += fmt.Sprintf("; and %d others", len(fresh)-1)
	}
	f.Report(text, nil)
}
