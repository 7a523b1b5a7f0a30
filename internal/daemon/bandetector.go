// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/os/periodic"
)

// banDetector bans the sources that exceed a limit of the running policy. Only limits with the action `ban` count.
type banDetector struct {
	in     control.Instance
	report func(Event)
	warned time.Time // when the last error was reported

	offences  *datapath.Offences // the open offences of the followed generation; nil when no generation is followed
	key       uint64             // of the followed generation; 0 when no generation is followed
	last      *control.BanLimits // the limits that BanLimits returned most recently
	asked     uint64             // the key of the running generation when `last` was read; 0: `last` must be read again
	limits    []control.BanLimit
	detectors []*ban.Detector // one for each limit
	lifelines []netip.Prefix  // the prefixes that this host depends on, as the detectors have them
	looked    time.Time       // when lifelines was read
	took      time.Duration   // how long reading lifelines took
	news      banNews
}

const (
	followLook = time.Second            // how often follow checks which generation runs
	gather     = 200 * time.Millisecond // how long offences are gathered before their bans are entered together
	warnAgain  = 10 * time.Second       // the least time between two reported errors: in a flood each ban could fail

	lifelineShare = 100 // reading the allowlist takes at most 1/100 of the time, because a router can have a million routes
)

// ban follows the running policy and bans its offenders until ctx ends.
func (w *watcher) ban(ctx context.Context) {
	b := &banDetector{in: w.in, report: w.report}
	defer b.end()
	for ctx.Err() == nil {
		if err := b.follow(ctx); err != nil && ctx.Err() == nil {
			b.warn(err)
		}
		for until := time.Now().Add(periodic.Left(followLook)); ctx.Err() == nil && time.Now().Before(until); {
			b.round(ctx, until)
		}
	}
}

// follow opens the offences of the running policy, unless they are open. After an error, the next call tries again.
func (b *banDetector) follow(ctx context.Context) error {
	running, err := b.in.RunningPolicy(ctx)
	limits, offences := b.last, (*datapath.Offences)(nil)
	if err != nil || running.Key != b.asked {
		limits, offences, err = b.in.BanLimits(ctx, b.key)
		b.last, b.asked = limits, 0
		if err == nil && (limits == nil || limits.Key == running.Key) {
			b.asked = running.Key
		}
	}
	switch {
	case err != nil:
		return err
	case limits == nil:
		b.end()
		return nil
	case offences == nil:
		return b.readAllowlist(ctx, limits)
	}
	b.end()
	return b.begin(ctx, limits, offences)
}

// begin starts to follow the generation that `of` describes.
func (b *banDetector) begin(ctx context.Context, of *control.BanLimits, offences *datapath.Offences) error {
	b.offences, b.key, b.limits, b.detectors, b.lifelines = offences, of.Key, of.Limits, nil, nil
	for _, limit := range b.limits {
		d := ban.NewDetector(&addrs.Set{})
		d.Allowed = func(p, never netip.Prefix) { b.news.skipped(allowlistedText(limit, p, never)) }
		b.detectors = append(b.detectors, d)
	}
	b.looked = time.Time{}
	if err := b.readAllowlist(ctx, of); err != nil {
		b.end()
		return err
	}
	b.report(Event{Text: fmt.Sprintf("banning who exceeds limits of %s, generation %d", of.Policy, of.Generation)})
	return nil
}

// readAllowlist gives the detectors the prefixes that must never be banned, if these have changed. They are the prefixes of the policy, the addresses
// of the operators who applied the policy, and the prefixes that the host depends on. The host's own addresses are among them, because arriving
// packets with such a source are forged.
func (b *banDetector) readAllowlist(ctx context.Context, of *control.BanLimits) error {
	if time.Since(b.looked) < lifelineShare*b.took {
		return nil
	}
	b.looked = time.Now()
	found, err := facts.System.Find()
	b.took = time.Since(b.looked)
	if err != nil || b.lifelines != nil && slices.Equal(found, b.lifelines) {
		return err
	}
	b.lifelines = found
	never := prefixSet(slices.Concat(of.Allowlist, found)...)
	for _, d := range b.detectors {
		d.SetAllowlist(never)
	}
	return b.pardon(ctx, never)
}

// pardon lifts automatic bans of prefixes that contain an address of the allowlist.
func (b *banDetector) pardon(ctx context.Context, never *addrs.Set) error {
	list, err := b.in.Blocked(ctx, "")
	if err != nil {
		return err
	}
	of := map[string][]netip.Prefix{}
	for _, e := range list {
		if e.Origin == ban.Automatic && never.Overlaps(prefixSet(e.Prefix)) {
			of[e.Set] = append(of[e.Set], e.Prefix)
		}
	}
	for set, prefixes := range of {
		_, err := b.in.Unblock(ctx, set, prefixes)
		if gone := (ban.Refusals)(nil); err != nil && !errors.As(err, &gone) {
			return err
		}
		b.report(Event{Text: fmt.Sprintf("%d automatic bans lifted, as this host depends on addresses in them: %s", len(prefixes), addrs.PrefixText(prefixes[0]))})
	}
	return nil
}

// prefixSet returns the set of all addresses in the prefixes.
func prefixSet(prefixes ...netip.Prefix) *addrs.Set {
	var b addrs.Builder
	for _, p := range prefixes {
		b.AddRange(p.Addr(), netipx.PrefixLastIP(p))
	}
	return b.Set()
}

func (b *banDetector) end() {
	if b.offences != nil {
		b.offences.Close()
		b.offences, b.key, b.asked = nil, 0, 0
	}
}

// round gathers offences for a short time and bans the offenders. If no limit is followed, round waits until the given time instead.
func (b *banDetector) round(ctx context.Context, until time.Time) {
	if b.offences == nil {
		periodic.Sleep(ctx, time.Until(until))
		return
	}
	found, err := b.offenders(ctx)
	if err != nil {
		b.warn(err)
		b.end()
	}
	for limit, list := range found {
		b.enter(ctx, limit, list)
	}
	if text := b.news.summary(time.Now()); text != "" {
		b.report(Event{Text: text})
	}
}

// offenders gathers offences for a short time. It returns the resulting bans by the number of the exceeded limit.
func (b *banDetector) offenders(ctx context.Context) (map[int][]ban.Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, gather)
	defer cancel()
	found := map[int][]ban.Verdict{}
	for {
		o, err := b.offences.Read(ctx)
		if ctx.Err() != nil {
			return found, nil
		}
		if err != nil {
			return found, err
		}
		if o.Limit >= len(b.limits) || b.limits[o.Limit].Ban == nil {
			continue // this limit does not ban
		}
		rule := b.limits[o.Limit].Ban
		if !o.Proved && !rule.Forgeable {
			continue // the source address may be forged
		}
		if v, ok := b.detectors[o.Limit].Offence(prefixOf(rule, o.Source), time.Now(), rule.For); ok {
			found[o.Limit] = append(found[o.Limit], v)
		}
	}
}

// enter puts bans for one limit into the set of that limit, and reports them.
func (b *banDetector) enter(ctx context.Context, number int, found []ban.Verdict) {
	limit := b.limits[number]
	var list []ban.Ban
	for _, v := range found {
		list = append(list, ban.Ban{Prefix: v.Prefix, Until: ban.After(limit.Ban.For), Rule: limit.Rule})
	}
	fill, err := b.in.Block(ctx, limit.Ban.Set, list)
	refused := refusedOf(err, len(list))
	for i, v := range found {
		if refused[i] {
			b.detectors[number].Refused(v.Prefix)
			continue
		}
		if !v.Again {
			b.news.banned(limit.Rule, bannedText(limit, v), v.Offends)
		}
	}
	switch {
	case ctx.Err() != nil: // the daemon ends
	case err != nil:
		b.warn(fmt.Errorf("rule %s: %w", limit.Rule, err))
	case fill.Warning() != "":
		b.warn(errors.New(fill.Warning()))
	}
}

// refusedOf returns one bool for each of n entries: whether err, an error of Block, refuses the entry.
func refusedOf(err error, n int) []bool {
	refused := make([]bool, n)
	var some ban.Refusals
	errors.As(err, &some)
	for i := range refused {
		refused[i] = err != nil && some == nil
	}
	for _, r := range some {
		refused[r.Index] = true
	}
	return refused
}

// bannedText returns the message for a ban.
func bannedText(l control.BanLimit, ban ban.Verdict) string {
	text := fmt.Sprintf("rule %s: banned %s for %s", l.Rule, addrs.PrefixText(ban.Prefix), l.Ban.For)
	if ban.Offends > 1 {
		text += fmt.Sprintf(", with %d offenders in it", ban.Offends)
	}
	return text
}

// allowlistedText returns the message for a prefix that is not banned, because it overlaps a prefix that must never be banned.
func allowlistedText(l control.BanLimit, p, never netip.Prefix) string {
	why := "is never banned"
	if never.Bits() > p.Bits() {
		why = fmt.Sprintf("holds %s, which is never banned", addrs.PrefixText(never))
	}
	return fmt.Sprintf("rule %s: not banned: %s exceeds its limit, but %s", l.Rule, addrs.PrefixText(p), why)
}

// prefixOf returns the prefix to ban when an address commits an offence.
func prefixOf(b *manifest.BanAction, a netip.Addr) netip.Prefix {
	lengths := ir.Prefixes{V4: b.V4, V6: b.V6}
	return lengths.Of(a)
}

// warn reports an error, unless it reported an error within the last warnAgain.
func (b *banDetector) warn(err error) {
	if now := time.Now(); now.Sub(b.warned) >= warnAgain {
		b.warned = now
		b.report(Event{Err: fmt.Errorf("bans: %w", err)})
	}
}
