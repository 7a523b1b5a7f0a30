package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/addrs"
	"github.com/floodwall/floodwall/internal/bans"
	"github.com/floodwall/floodwall/internal/datapath"
)

// banner bans who exceeds limits with `ban`, of the policy that runs.
type banner struct {
	in         Instance
	report     func(Event)
	generation int
	limits     []limitEntry
	detectors  []*bans.Detector // of each limit
	offences   *datapath.Offences
}

// gather is how long offences are gathered before the bans that follow are entered, together.
const gather = 200 * time.Millisecond

// ban bans until ctx ends.
func (in Instance) ban(ctx context.Context, report func(Event)) {
	b := &banner{in: in, report: report}
	defer b.end()
	for ctx.Err() == nil {
		if err := b.follow(ctx); err != nil && !errors.Is(err, datapath.ErrNotLoaded) && ctx.Err() == nil {
			report(Event{Err: fmt.Errorf("bans: %w", err)})
		}
		if b.offences == nil {
			wait(ctx, trialLook)
			continue
		}
		for _, ban := range b.next(ctx) {
			b.enter(ctx, ban)
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (b *banner) end() {
	if b.offences != nil {
		b.offences.Close()
		b.offences = nil
	}
}

// follow opens the offences of what runs now, unless they are open.
func (b *banner) follow(ctx context.Context) error {
	l, err := b.in.open(ctx)
	if err != nil {
		b.end()
		b.generation = 0
		return err
	}
	defer l.close()
	g := l.generations[0]
	if g.number == b.generation {
		return nil
	}
	b.end()
	b.generation, b.limits, b.detectors = g.number, g.manifest.Limits, nil
	if g.program == nil || g.manifest.banningRule() == "" {
		return nil
	}
	never, err := g.manifest.spared()
	if err != nil {
		return err
	}
	for range b.limits {
		b.detectors = append(b.detectors, bans.New(never))
	}
	b.offences, err = g.program.Offences()
	return err
}

// offenders are bans of one limit.
type offenders struct {
	limit limitEntry
	bans  []bans.Ban
}

// next gathers offences for a while, and returns the bans that follow, by limit.
func (b *banner) next(ctx context.Context) map[int]offenders {
	ctx, cancel := context.WithTimeout(ctx, gather)
	defer cancel()
	found := map[int]offenders{}
	for {
		o, err := b.offences.Read(ctx)
		if err != nil {
			if ctx.Err() == nil {
				b.report(Event{Err: err})
			}
			return found
		}
		if o.Limit >= len(b.limits) || b.limits[o.Limit].Ban == nil {
			continue // a layer that does not ban
		}
		limit := b.limits[o.Limit]
		if ban, ok := b.detectors[o.Limit].Offence(limit.Ban.prefix(o.Source), time.Now(), limit.Ban.For); ok {
			found[o.Limit] = offenders{limit, append(found[o.Limit].bans, ban)}
		}
	}
}

// enter puts bans into the limit's set.
func (b *banner) enter(ctx context.Context, o offenders) {
	var list []Ban
	for _, ban := range o.bans {
		list = append(list, Ban{Prefix: ban.Prefix, For: o.limit.Ban.For, Why: fmt.Sprintf("rule %s: above %s", o.limit.Rule, o.limit.Text)})
	}
	fill, err := b.in.Block(ctx, o.limit.Ban.Set, list)
	if err != nil {
		b.report(Event{Err: fmt.Errorf("bans of rule %s: %w", o.limit.Rule, err)})
	}
	if w := fill.Warning(); w != "" {
		b.report(Event{Err: errors.New(w)})
	}
	for _, ban := range o.bans {
		text := fmt.Sprintf("rule %s: banned %s for %s", o.limit.Rule, ban.Prefix, o.limit.Ban.For)
		if ban.Offends > 1 {
			text += fmt.Sprintf(", with %d offenders in it", ban.Offends)
		}
		b.report(Event{Text: text})
	}
}

// prefix is what is banned for an offence of an address.
func (b *banEntry) prefix(a netip.Addr) netip.Prefix {
	length := b.V6
	if a.Is4() {
		length = b.V4
	}
	p, _ := a.Prefix(length)
	return p
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

// spared is who is never banned: those that the policy names, and the host itself, whose addresses only a forger would
// send from.
func (m *manifest) spared() (*addrs.Set, error) {
	var b addrs.Builder
	for _, p := range m.Never {
		b.AddRange(p.Addr(), netipx.PrefixLastIP(p))
	}
	own, err := ownAddresses()
	if err != nil {
		return nil, fmt.Errorf("own addresses: %w", err)
	}
	for _, a := range own {
		b.AddRange(a, a)
	}
	return b.Set(), nil
}
