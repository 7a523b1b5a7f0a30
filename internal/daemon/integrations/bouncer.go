// SPDX-License-Identifier: Apache-2.0

// This file applies the bans of a CrowdSec local API. In: the API's stream of decisions. Out: entries of a dynamic set.
//
// Read bouncer.go first. client.go sends requests to the server, book.go records which decisions are in force.
//
// When the server cannot be reached, or when its answer cannot be read, decisions stay in force until their end. A decision ends earlier only if the
// server lists it as deleted.

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

// Sets contains the dynamic sets that a Bouncer writes to. control.Instance implements it.
type Sets interface {
	RunningPolicy(ctx context.Context) (control.RunningPolicy, error)
	Block(ctx context.Context, set string, bans []ban.Ban) (control.Fill, error)
	UnblockOf(ctx context.Context, set string, of ban.Owner, prefixes []netip.Prefix) (control.Fill, error)
	EachBlocked(ctx context.Context, set string, fn func(ban.Ban)) error
}

// Bouncer makes a dynamic set equal to the decisions of a local API.
type Bouncer struct {
	Sets   Sets
	Report func(text string, err error) // called with each action and each error

	client  *client
	of      policy.CrowdSec
	key     uint64 // the key of the policy for which `entered` is valid
	book    *book
	entered map[netip.Prefix]entry // the Bouncer's entries in the set; nil: unknown
	whole   bool                   // the book has received all decisions since the last failure
	fails   int
	full    time.Time       // when to request all decisions again
	due     time.Time       // when to send the next request
	said    map[string]bool // messages that must not be repeated
	failed  string          // the last error, "" when it has disappeared
}

// fullTurns is the number of requests after which all decisions are requested again. The reason is that a local API (seen with 1.4.6) records the
// time of a request only after its query. It never sends a decision that is made between the query and the recorded time.
const fullTurns = 30

// slack is the greatest difference between two end times that count as equal, because servers and kernels round times.
const slack = 3 * time.Second

// Run follows the running policies until ctx ends.
func (b *Bouncer) Run(ctx context.Context) error {
	periodic.Run(ctx, look, func() {
		if err := b.step(ctx); err != nil && ctx.Err() == nil && err.Error() != b.failed {
			b.failed = err.Error()
			b.Report("", err)
		}
	})
	return nil
}

// step performs the actions that are due.
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

// turn sends a request and updates the set. It updates the set even when the server does not answer, because the policy may have changed.
func (b *Bouncer) turn(ctx context.Context, w control.RunningPolicy) error {
	var asked error
	if b.client != nil && !time.Now().Before(b.due) {
		asked = b.ask(ctx)
	}
	if ctx.Err() != nil {
		return nil
	}
	switch err := b.sync(ctx, w); {
	case errors.Is(err, datapath.ErrLocked): // another command changes the policy: the next step comes soon
		b.entered = nil
	case err != nil:
		b.entered = nil
		return fmt.Errorf("crowdsec: %w", err)
	}
	return asked
}

// ask requests decisions, applies the answer, and sets the time of the next request.
func (b *Bouncer) ask(ctx context.Context) error {
	if err := b.find(ctx); err != nil {
		return fmt.Errorf("crowdsec: %w", err)
	}
	all := !b.whole || !time.Now().Before(b.full)
	a, err := b.client.ask(ctx, all)
	if err != nil {
		b.whole = false
		b.client.http.CloseIdleConnections()
		b.client = nil // the files of the client are read again, because they may have changed
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

// pause returns how long to wait after a failure. Each failure doubles the wait, up to mostWait.
func (b *Bouncer) pause() time.Duration {
	wait := min(b.of.Every<<min(b.fails, 10), mostWait)
	return wait/2 + rand.N(wait/2)
}

// tellIgnored reports, once for each reason, that decisions are ignored.
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

// find reads the Bouncer's entries in the set, which an earlier daemon or an earlier policy has left.
func (b *Bouncer) find(ctx context.Context) error {
	if b.entered != nil {
		return nil
	}
	found := map[netip.Prefix]entry{}
	err := b.Sets.EachBlocked(ctx, b.of.Set, func(one ban.Ban) {
		if one.Origin != ban.CrowdSec {
			return
		}
		found[one.Prefix] = entry{one.Prefix, one.Until, one.Why}
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

// sync updates the set from the book, with one change that removes entries and one that adds entries.
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
		bans = append(bans, ban.Ban{Prefix: p, Until: e.end, Why: e.why, Origin: ban.CrowdSec, Replace: true})
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
		var past ban.Refusals // entries that have ended or now have another owner
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

// screen removes prefixes that no program may ban. If there are more entries than the set can hold, screen removes those that end first.
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

// tell reports the changes.
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
