package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/addrs"
	"github.com/floodwall/floodwall/internal/bans"
	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/lifeline"
)

// banner bans who exceeds limits with `ban`, of the policy that runs.
type banner struct {
	in     Instance
	report func(Event)
	warned time.Time // when the last error was reported

	offences  *datapath.Offences // of the generation that is followed; nil when none is
	key       uint64             // of its questions: its number may come again
	limits    []limitEntry
	detectors []*bans.Detector // of each limit
	lifelines []netip.Prefix   // of the host, as the detectors know them
	looked    time.Time        // when they were found,
	took      time.Duration    // and how long that took
	news      banNews
}

const (
	followLook = time.Second            // how often to look which generation runs
	gather     = 200 * time.Millisecond // how long to gather offences before the bans that follow are entered, together
	warnAgain  = 10 * time.Second       // how long one error is enough: in a flood it would come with every ban

	lifelineShare = 100 // finding whom to spare takes at most so small a share of the time: a router can have a million routes
)

// ban bans until ctx ends.
func (in Instance) ban(ctx context.Context, report func(Event)) {
	b := &banner{in: in, report: report}
	defer b.end()
	for ctx.Err() == nil {
		if err := b.follow(ctx); err != nil && ctx.Err() == nil {
			b.warn(err)
		}
		for until := time.Now().Add(followLook); ctx.Err() == nil && time.Now().Before(until); {
			b.round(ctx, until)
		}
	}
}

// follow opens the offences of what runs now, unless they are open. What cannot be told now is for the next look.
func (b *banner) follow(ctx context.Context) error {
	l, err := b.in.open(ctx)
	if errors.Is(err, datapath.ErrNotLoaded) {
		b.end()
		return nil
	}
	if err != nil {
		return err
	}
	defer l.close()
	g := l.generations[0]
	if b.offences != nil && b.key == g.manifest.Key {
		return b.spare(ctx, g.manifest)
	}
	b.end()
	if g.program == nil || g.manifest.banningRule() == "" {
		return nil
	}
	return b.begin(ctx, g)
}

// begin follows a generation.
func (b *banner) begin(ctx context.Context, g *generation) (err error) {
	if b.offences, err = g.program.Offences(); err != nil {
		return err
	}
	b.key, b.limits, b.detectors, b.lifelines = g.manifest.Key, g.manifest.Limits, nil, nil
	for i := range b.limits {
		d := bans.New(&addrs.Set{})
		d.Spared = func(p, never netip.Prefix) { b.news.spared(b.limits[i].spared(p, never)) }
		b.detectors = append(b.detectors, d)
	}
	b.looked = time.Time{}
	if err := b.spare(ctx, g.manifest); err != nil {
		b.end()
		return err
	}
	b.report(Event{Text: fmt.Sprintf("banning who exceeds limits of %s, generation %d", g.manifest.File, g.number)})
	return nil
}

// spare tells the detectors whom not to ban, when that are others than before.
func (b *banner) spare(ctx context.Context, m *manifest) error {
	if time.Since(b.looked) < lifelineShare*b.took {
		return nil
	}
	b.looked = time.Now()
	found, err := lifeline.System.Find()
	b.took = time.Since(b.looked)
	if err != nil || b.lifelines != nil && slices.Equal(found, b.lifelines) {
		return err
	}
	b.lifelines = found
	never := m.spared(found)
	for _, d := range b.detectors {
		d.Spare(never)
	}
	return b.pardon(ctx, never)
}

// pardon lifts automatic bans of prefixes with an address that is not to be banned.
func (b *banner) pardon(ctx context.Context, never *addrs.Set) error {
	list, err := b.in.Blocked(ctx, "")
	if err != nil {
		return err
	}
	of := map[string][]netip.Prefix{}
	for _, e := range list {
		if e.Origin == Automatic && never.Overlaps(prefixSet(e.Prefix)) {
			of[e.Set] = append(of[e.Set], e.Prefix)
		}
	}
	for set, prefixes := range of {
		_, err := b.in.Unblock(ctx, set, prefixes)
		if gone := (Refusals)(nil); err != nil && !errors.As(err, &gone) {
			return err
		}
		b.report(Event{Text: fmt.Sprintf("%d automatic bans lifted, as this host depends on addresses in them: %s", len(prefixes), text(prefixes[0]))})
	}
	return nil
}

func prefixSet(p netip.Prefix) *addrs.Set {
	var b addrs.Builder
	b.AddRange(p.Addr(), netipx.PrefixLastIP(p))
	return b.Set()
}

func (b *banner) end() {
	if b.offences != nil {
		b.offences.Close()
		b.offences = nil
	}
}

// round bans for what offends in a short while, or waits until then when there is nothing to follow.
func (b *banner) round(ctx context.Context, until time.Time) {
	if b.offences == nil {
		wait(ctx, time.Until(until))
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

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// offenders gathers offences for a while, and returns the bans that follow, by the number of the limit.
func (b *banner) offenders(ctx context.Context) (map[int][]bans.Ban, error) {
	ctx, cancel := context.WithTimeout(ctx, gather)
	defer cancel()
	found := map[int][]bans.Ban{}
	for {
		o, err := b.offences.Read(ctx)
		if ctx.Err() != nil {
			return found, nil
		}
		if err != nil {
			return found, err
		}
		if o.Limit >= len(b.limits) || b.limits[o.Limit].Ban == nil {
			continue // a layer that does not ban
		}
		rule := b.limits[o.Limit].Ban
		if !o.Proved && !rule.Forgeable {
			continue // anybody can have written the source
		}
		if ban, ok := b.detectors[o.Limit].Offence(rule.prefix(o.Source), time.Now(), rule.For); ok {
			found[o.Limit] = append(found[o.Limit], ban)
		}
	}
}

// enter puts bans for one limit into its set, and reports them.
func (b *banner) enter(ctx context.Context, number int, found []bans.Ban) {
	limit := b.limits[number]
	var list []Ban
	for _, ban := range found {
		list = append(list, Ban{Prefix: ban.Prefix, For: limit.Ban.For, Rule: limit.Rule})
	}
	fill, err := b.in.Block(ctx, limit.Ban.Set, list)
	refused := refusedOf(err, len(list))
	for i, ban := range found {
		if refused[i] {
			b.detectors[number].Refused(ban.Prefix)
			continue
		}
		if !ban.Again {
			b.news.banned(limit.Rule, limit.banned(ban), ban.Offends)
		}
	}
	switch {
	case err != nil && ctx.Err() == nil:
		b.warn(fmt.Errorf("rule %s: %w", limit.Rule, err))
	case fill.Warning() != "":
		b.warn(errors.New(fill.Warning()))
	}
}

// refusedOf tells which of n entries an error of Block is about.
func refusedOf(err error, n int) []bool {
	refused := make([]bool, n)
	var some Refusals
	errors.As(err, &some)
	for i := range refused {
		refused[i] = err != nil && some == nil
	}
	for _, r := range some {
		refused[r.Index] = true
	}
	return refused
}

// banned tells of a ban.
func (l *limitEntry) banned(ban bans.Ban) string {
	text := fmt.Sprintf("rule %s: banned %s for %s", l.Rule, text(ban.Prefix), l.Ban.For)
	if ban.Offends > 1 {
		text += fmt.Sprintf(", with %d offenders in it", ban.Offends)
	}
	return text
}

// spared tells of a prefix that is not banned, since one around it or in it never is.
func (l *limitEntry) spared(p, never netip.Prefix) string {
	why := "is never banned"
	if never.Bits() > p.Bits() {
		why = fmt.Sprintf("holds %s, which is never banned", text(never))
	}
	return fmt.Sprintf("rule %s: not banned: %s exceeds its limit, but %s", l.Rule, text(p), why)
}

// warn reports an error, unless there was one just before.
func (b *banner) warn(err error) {
	if now := time.Now(); now.Sub(b.warned) >= warnAgain {
		b.warned = now
		b.report(Event{Err: fmt.Errorf("bans: %w", err)})
	}
}

// prefix is what is banned for an offence of an address.
func (b *banEntry) prefix(a netip.Addr) netip.Prefix {
	lengths := ir.Prefixes{V4: b.V4, V6: b.V6}
	return lengths.Of(a)
}

// banningRule is the first rule with a limit that bans, "" when there is none.
func (m *manifest) banningRule() string {
	for _, l := range m.Limits {
		if l.Ban != nil {
			return l.Rule
		}
	}
	return ""
}

// operators notes who applied a policy that bans.
func (m *manifest) operators(sessions []Session) {
	if m.banningRule() == "" {
		return
	}
	for _, s := range sessions {
		m.Operators = append(m.Operators, netip.PrefixFrom(s.Client.Addr(), s.Client.Addr().BitLen()))
	}
}

// spared is who is never banned: those that the policy names, what the host depends on, and the operators who applied it. Only
// a forger would send from the host's own addresses.
func (m *manifest) spared(lifelines []netip.Prefix) *addrs.Set {
	var b addrs.Builder
	for _, p := range slices.Concat(m.Never, lifelines, m.Operators) {
		b.AddRange(p.Addr(), netipx.PrefixLastIP(p))
	}
	return b.Set()
}

// NobodyBanned begins the warning that bans wait for the daemon.
const NobodyBanned = "nobody is banned"

// bansWaitFor says what bans wait for, "" when somebody watches or no rule bans.
func (in Instance) bansWaitFor(m *manifest) string {
	rule := m.banningRule()
	if rule == "" || in.watched() {
		return ""
	}
	return fmt.Sprintf(NobodyBanned+" for rule %q while `floodwall daemon` does not run: start it; `apply --boot` has systemd start it after each reboot", rule)
}
