// This file bans whom a CrowdSec local API has decided to ban. In: its stream of decisions. Out: entries of a dynamic set.
//
// Read bouncer.go first. client.go asks the server, book.go knows which decisions are in force.
//
// What is in force stays until its end when the server is gone, or answers something that cannot be read. Only a decision that
// the server names as deleted ends before.

package integrations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/host/allowlist"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/policy"
)

// Sets are where a Bouncer enters bans. control.Instance has them.
type Sets interface {
	RunningPolicy(ctx context.Context) (control.RunningPolicy, error)
	Block(ctx context.Context, set string, bans []ban.Ban) (control.Fill, error)
	UnblockOf(ctx context.Context, set string, of ban.Owner, prefixes []netip.Prefix) (control.Fill, error)
	EachBlocked(ctx context.Context, set string, fn func(ban.Blocked)) error
}

// Bouncer keeps a dynamic set as a local API decides.
type Bouncer struct {
	Sets   Sets
	Report func(text string, err error) // is told what was done, or what could not be

	client  *client
	of      policy.CrowdSec
	key     uint64 // of the policy that entered is about
	book    *book
	entered map[netip.Prefix]entry // what the set has of ours; nil: to be found out
	whole   bool                   // the book has had all decisions since the last failure
	fails   int
	full    time.Time       // when to ask for all decisions again
	due     time.Time       // when to ask next
	said    map[string]bool // what was said, and need not be again
	failed  string          // the last error, until it has gone
}

// fullTurns is after how many turns all decisions are asked for again. A local API (seen with 1.4.6) notes when it was asked after it has
// looked for what is new: it never tells of a decision that is made between the two.
const fullTurns = 30

// slack is by how much two ends may differ that mean the same: servers and kernels round.
const slack = 3 * time.Second

// Run follows the policies that run, until ctx ends.
func (b *Bouncer) Run(ctx context.Context) error {
	periodic.Run(ctx, look, func() {
		if err := b.step(ctx); err != nil && ctx.Err() == nil && err.Error() != b.failed {
			b.failed = err.Error()
			b.Report("", err)
		}
	})
	return nil
}

// step does what is due.
func (b *Bouncer) step(ctx context.Context) error {
	w, err := b.Sets.RunningPolicy(ctx)
	switch {
	case errors.Is(err, datapath.ErrNotLoaded):
		b.entered = nil
		return nil
	case err != nil:
		return err
	case w.Daemon.CrowdSec == nil:
		*b = Bouncer{Sets: b.Sets, Report: b.Report}
		return nil
	}
	if b.of != *w.Daemon.CrowdSec {
		*b = Bouncer{Sets: b.Sets, Report: b.Report, of: *w.Daemon.CrowdSec, book: newBook(), said: map[string]bool{}, failed: b.failed}
	}
	if b.client == nil {
		if b.client, err = newClient(b.of); err != nil {
			return err
		}
	}
	if w.Key != b.key {
		b.key, b.entered = w.Key, nil
	}
	if time.Now().Before(b.due) && b.entered != nil {
		return nil
	}
	return b.turn(ctx, w)
}

// turn asks, and brings the set up to date, also when the server does not answer: the policy may be another.
func (b *Bouncer) turn(ctx context.Context, w control.RunningPolicy) error {
	var asked error
	if b.client != nil && !time.Now().Before(b.due) {
		asked = b.ask(ctx)
	}
	if ctx.Err() != nil {
		return nil
	}
	switch err := b.sync(ctx, w); {
	case errors.Is(err, datapath.ErrLocked): // a command changes what runs: the next step comes soon
		b.entered = nil
	case err != nil:
		b.entered = nil
		return fmt.Errorf("crowdsec: %w", err)
	}
	return asked
}

// ask takes what the server answers, and says when to ask next.
func (b *Bouncer) ask(ctx context.Context) error {
	if err := b.find(ctx); err != nil {
		return fmt.Errorf("crowdsec: %w", err)
	}
	all := !b.whole || !time.Now().Before(b.full)
	a, err := b.client.ask(ctx, all)
	if err != nil {
		b.whole = false
		b.client.http.CloseIdleConnections()
		b.client = nil // its files may have changed by then
		b.due = time.Now().Add(b.pause())
		b.fails++
		return err
	}
	if b.failed != "" || b.fails > 0 {
		b.Report(fmt.Sprintf("crowdsec: %s answers", b.of.URL), nil)
	}
	if all {
		b.full = time.Now().Add(fullTurns * b.of.Every)
	}
	b.whole, b.fails, b.failed = true, 0, ""
	b.due = time.Now().Add(b.of.Every - b.of.Every/10 + rand.N(b.of.Every/5))
	b.book.take(a, time.Now())
	b.tellIgnored()
	return nil
}

// pause is how long to wait after a failure: longer after each, and never longer than mostWait.
func (b *Bouncer) pause() time.Duration {
	wait := min(b.of.Every<<min(b.fails, 10), mostWait)
	return wait/2 + rand.N(wait/2)
}

// tellIgnored says once of each reason that decisions are ignored.
func (b *Bouncer) tellIgnored() {
	for why, of := range b.book.ignored {
		if b.said[why] {
			continue
		}
		b.said[why] = true
		text := fmt.Sprintf("crowdsec: %d decisions %s are ignored", of.n, why)
		if of.example != "" {
			text += fmt.Sprintf(", as %.40q", of.example)
		}
		b.Report(text, nil)
	}
	clear(b.book.ignored)
}

// find finds out which entries the set has of ours: those of a daemon before, or of the policy before.
func (b *Bouncer) find(ctx context.Context) error {
	if b.entered != nil {
		return nil
	}
	found, now := map[netip.Prefix]entry{}, time.Now()
	err := b.Sets.EachBlocked(ctx, b.of.Set, func(one ban.Blocked) {
		if one.Origin != ban.CrowdSec {
			return
		}
		e := entry{one.Prefix, now.Add(100 * 365 * 24 * time.Hour), one.Why}
		if one.Expires != nil {
			e.end = now.Add(time.Duration(*one.Expires * float64(time.Second)))
		}
		found[one.Prefix] = e
	})
	if err != nil {
		return err
	}
	for _, e := range found {
		b.book.hold(e)
	}
	b.entered = found
	return nil
}

// sync brings the set to what the book says, with one change for what goes and one for what comes.
func (b *Bouncer) sync(ctx context.Context, w control.RunningPolicy) error {
	if err := b.find(ctx); err != nil {
		return err
	}
	now := time.Now()
	b.book.expire(now)
	fill, err := b.Sets.Block(ctx, b.of.Set, nil)
	if err != nil {
		return err
	}
	wanted, refused, over := screen(b.book.wanted(), allowlist.Now(w.Allowlist), fill.Capacity-fill.Capacity/4)
	maps.DeleteFunc(b.entered, func(_ netip.Prefix, e entry) bool { return !e.end.After(now) })
	var gone []netip.Prefix
	for p := range b.entered {
		if _, ok := wanted[p]; !ok {
			gone = append(gone, p)
		}
	}
	var bans []ban.Ban
	for p, e := range wanted {
		if was, ok := b.entered[p]; ok && was.end.Sub(e.end).Abs() <= slack {
			continue
		}
		bans = append(bans, ban.Ban{Prefix: p, For: max(e.end.Sub(now), time.Second), Why: e.why, Origin: ban.CrowdSec, Replace: true})
	}
	full, err := b.change(ctx, fill.Set, gone, bans)
	if err != nil {
		return err
	}
	b.entered = wanted
	for _, r := range full {
		delete(b.entered, bans[r.Index].Prefix)
	}
	b.tell(len(bans)-len(full), len(gone), len(full), refused, over)
	return nil
}

// change removes prefixes and enters bans. It returns the bans that the set has refused.
func (b *Bouncer) change(ctx context.Context, set string, gone []netip.Prefix, bans []ban.Ban) (full ban.Refusals, err error) {
	if len(gone) > 0 {
		var past ban.Refusals // entries that have ended, or are another's by now
		_, err := b.Sets.UnblockOf(ctx, set, ban.Owner{Origin: ban.CrowdSec}, gone)
		if err != nil && !errors.As(err, &past) {
			return nil, err
		}
	}
	if len(bans) > 0 {
		if _, err := b.Sets.Block(ctx, set, bans); err != nil && !errors.As(err, &full) {
			return nil, err
		}
	}
	return full, nil
}

// screen leaves out prefixes that no program may ban, and those that end first of more than a set has space for.
func screen(all map[netip.Prefix]entry, never *allowlist.List, most int) (kept map[netip.Prefix]entry, refused []string, over int) {
	for p := range all {
		if why := never.Why(p); why != "" {
			refused = append(refused, addrs.PrefixText(p)+" "+why)
			delete(all, p)
		}
	}
	slices.Sort(refused)
	if over = len(all) - most; over <= 0 {
		return all, refused, 0
	}
	list := slices.SortedFunc(maps.Values(all), func(a, b entry) int {
		return cmp.Or(a.end.Compare(b.end), a.prefix.Addr().Compare(b.prefix.Addr()))
	})
	for _, e := range list[:over] {
		delete(all, e.prefix)
	}
	return all, refused, over
}

// tell says what has changed.
func (b *Bouncer) tell(entered, removed, full int, refused []string, over int) {
	var parts []string
	if entered+removed > 0 {
		parts = append(parts, fmt.Sprintf("%d entries entered or changed, %d removed", entered, removed))
	}
	for _, part := range []struct {
		n    int
		text string
	}{
		{len(refused), "not banned: " + strings.Join(refused[:min(len(refused), 1)], "")},
		{over, "left out, as the set has no space for more: raise its max and apply"},
		{full, "refused by the set"},
	} {
		text := fmt.Sprintf("%d decisions are %s", part.n, part.text)
		if part.n > 0 && !b.said[text] {
			parts = append(parts, text)
			b.said[text] = true
		}
	}
	if len(b.said) > 1000 {
		clear(b.said)
	}
	if parts != nil {
		b.Report("crowdsec: "+strings.Join(parts, "; "), nil)
	}
}
