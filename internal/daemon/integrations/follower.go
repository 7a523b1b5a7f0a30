// This file bans the senders of packets that a Suricata on this host warns of. In: the alerts of its eve.json. Out: entries of a
// dynamic set.
//
// Read follower.go first. tail.go follows the file, alert.go reads a line, notes.go says what bans nobody.

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

// SuricataSets are where a Follower enters bans. control.Instance has them.
type SuricataSets interface {
	RunningPolicy(ctx context.Context) (control.RunningPolicy, error)
	Block(ctx context.Context, set string, bans []ban.Ban) (control.Fill, error)
}

// AlertFollower bans as the file says that the running policy names.
type AlertFollower struct {
	Sets   SuricataSets
	Report func(text string, err error) // is told what was done, or what could not be

	of      policy.Suricata
	key     uint64 // of the policy that known is about
	tail    *tail
	waiting map[netip.Prefix]suricataEntry // to be entered
	known   map[netip.Prefix]suricataEntry // entered: alerts that follow at once change nothing
	failed  string                         // the last error, until it has gone
	notes   notes
}

// suricataEntry is a ban with its end.
type suricataEntry struct {
	ban ban.Ban
	end time.Time
}

// Times and limits of a Follower.
const (
	renew       = 10 * time.Second // a ban that would end so much later is entered again
	mostWaiting = 1000             // bans that are entered at once
	mostKnown   = 100_000
)

// Run follows the policies that run, until ctx ends.
func (f *AlertFollower) Run(ctx context.Context) error {
	defer f.stop()
	periodic.Run(ctx, look, func() {
		switch err := f.step(ctx); {
		case err == nil:
			f.failed = ""
		case errors.Is(err, datapath.ErrLocked): // a command changes what runs: the next step comes soon
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

// step does what is due.
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
		f.tail, f.waiting, f.notes = &tail{path: of.Eve}, map[netip.Prefix]suricataEntry{}, newNotes()
	}
	if f.key != w.Key || f.known == nil {
		f.key, f.known = w.Key, map[netip.Prefix]suricataEntry{}
	}
	f.of = of
	defer func() { f.notes.tell(time.Now(), f.Report) }()
	return f.follow(ctx, w.Allowlist)
}

// follow reads until the end of the file, and enters bans between.
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

// take reads a line.
func (f *AlertFollower) take(line []byte) {
	now := time.Now()
	b, why, err := read(line, f.of, now)
	switch {
	case err != nil:
		f.notes.invalid++
	case why != "":
		f.notes.ignored[why]++
	case b.Prefix.IsValid():
		end := now.Add(b.For)
		if was, ok := f.known[b.Prefix]; !ok || end.Sub(was.end) >= renew {
			f.waiting[b.Prefix] = suricataEntry{b, end}
		}
	}
}

// enter bans who waits for it, but for whom no program may ban. When it fails, they go on waiting.
func (f *AlertFollower) enter(ctx context.Context, spare []netip.Prefix) error {
	if len(f.waiting) == 0 {
		return nil
	}
	now, never := time.Now(), allowlist.Now(spare)
	var bans []ban.Ban
	for p, e := range f.waiting {
		if why := never.Why(p); why != "" {
			f.notes.ignored[addrs.PrefixText(p)+" "+why]++
			delete(f.waiting, p)
		} else if e.ban.For = e.end.Sub(now); e.ban.For < time.Second {
			delete(f.waiting, p)
		} else {
			bans = append(bans, e.ban)
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

// remember notes that who waited is banned, and says so of those who were not before.
func (f *AlertFollower) remember() {
	if len(f.known) > mostKnown {
		clear(f.known)
	}
	var fresh []ban.Ban
	for p, e := range f.waiting {
		if was, ok := f.known[p]; !ok || was.end.Before(time.Now()) {
			fresh = append(fresh, e.ban)
		}
		f.known[p] = e
	}
	clear(f.waiting)
	if len(fresh) == 0 {
		return
	}
	first := slices.MinFunc(fresh, func(a, b ban.Ban) int { return a.Prefix.Addr().Compare(b.Prefix.Addr()) })
	text := fmt.Sprintf("suricata: banned %s for %v: %s", addrs.PrefixText(first.Prefix), first.For.Round(time.Second), first.Why)
	if len(fresh) > 1 {
		text += fmt.Sprintf("; and %d others", len(fresh)-1)
	}
	f.Report(text, nil)
}
