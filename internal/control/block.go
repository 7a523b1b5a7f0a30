package control

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/banlog"
	"github.com/floodwall/floodwall/internal/hostfacts"
)

// Forever as a Ban's duration says that it does not expire.
const Forever = time.Duration(math.MaxInt64)

// Ban is an entry to put into a dynamic set.
type Ban struct {
	Prefix netip.Prefix
	For    time.Duration // 0: the set's timeout; Forever: none
	Why    string
	Range  int // bans behind each other with the same number, not 0, are one range: all are entered, or none

	// Rule names the rule whose limit was exceeded, for a ban that no person asked for. Such a ban gives way to others when the
	// set is full, and changes none of theirs.
	Rule string
}

// SetError says that a set cannot be used as it was asked.
type SetError struct{ Problem, Remedy string }

func (e *SetError) Error() string { return e.Problem }

// Hint is the remedy.
func (e *SetError) Hint() string { return e.Remedy }

// Fill is how full a set is after a change.
type Fill struct {
	Set      string `json:"set"`
	Changed  int    `json:"changed"`
	Entries  int    `json:"entries"`
	Capacity int    `json:"capacity"`
	Unsaved  error  `json:"-"` // why the change does not last over a reboot, nil if it does
}

// Warning says when the set is nearly full.
func (f Fill) Warning() string {
	if f.Entries*10 < f.Capacity*9 {
		return ""
	}
	return fmt.Sprintf("set %q is %d%% full: %d of %d entries; raise its max in the policy and apply",
		f.Set, f.Entries*100/f.Capacity, f.Entries, f.Capacity)
}

// Refusal says why one entry of a Block or Unblock was not changed.
type Refusal struct {
	Index int // of the entry in the call
	Err   error
}

// Refusals are all of a call, in its order. The other entries were changed.
type Refusals []Refusal

func (r Refusals) Error() string {
	return fmt.Sprintf("%v (and %d more)", r[0].Err, len(r)-1)
}

// Block puts entries into a dynamic set, "" for the only one there is or the one named bans. Each has effect before
// Block returns. Those that cannot be entered are returned as Refusals, of a range the first.
func (in Instance) Block(ctx context.Context, set string, bans []Ban) (Fill, error) {
	return in.changeSet(ctx, set, setChange{
		func(s banSet) (int, Refusals, error) { return s.block(ctx, bans) },
		func(e setEntry, refused Refusals) []banlog.Record { return blockedRecords(e, bans, refused) },
	})
}

// Unblock removes entries of exactly these prefixes. Those that there were not are returned as Refusals.
func (in Instance) Unblock(ctx context.Context, set string, prefixes []netip.Prefix) (Fill, error) {
	return in.changeSet(ctx, set, setChange{
		func(s banSet) (int, Refusals, error) { return s.unblock(ctx, prefixes) },
		func(e setEntry, refused Refusals) []banlog.Record { return unblockedRecords(e, prefixes, refused) },
	})
}

// banSet is a dynamic set where it is in the kernel.
type banSet interface {
	block(ctx context.Context, bans []Ban) (changed int, refused Refusals, err error)
	unblock(ctx context.Context, prefixes []netip.Prefix) (changed int, refused Refusals, err error)
	list(ctx context.Context) ([]Blocked, error)
	count(ctx context.Context) (int, error)
}

// banSets are the places where a generation has a dynamic set. XDP comes first: it sees packets first, and what it
// refuses is not entered elsewhere either.
func (l *live) banSets(ctx context.Context, g *generation, e setEntry) (sets []banSet, err error) {
	if g.program != nil {
		dynamic, err := openDynamic(g.program)
		if err != nil {
			return nil, err
		}
		if dynamic != nil {
			sets = append(sets, &xdpSet{dynamic.Sets[e.Dynamic], e})
		}
	}
	for _, p := range g.manifest.Rulesets {
		if names, ok := p.Sets[e.Name]; ok {
			t, err := l.tool(ctx, p.Kind)
			if err != nil {
				return nil, err
			}
			sets = append(sets, &filterSet{t, p, names, e})
		}
	}
	return sets, nil
}

// setChange is a change of a set, and what to keep of it over a reboot.
type setChange struct {
	do      func(banSet) (int, Refusals, error)
	records func(e setEntry, refused Refusals) []banlog.Record
}

// changeSet changes a set of every generation that runs or may run again, under the lock.
func (in Instance) changeSet(ctx context.Context, name string, c setChange) (fill Fill, err error) {
	err = in.change(ctx, func(l *live) error {
		var refused Refusals
		// The one that decides comes last, and its answer counts: another may not have the set, or the entries.
		for _, g := range l.all() {
			if fill, refused, err = l.changeIn(ctx, g, name, c.do); err != nil && g == l.generations[0] {
				return err
			}
		}
		fill.Unsaved = in.keepChange(ctx, l, fill.Set, c, refused)
		if refused != nil {
			return refused
		}
		return nil
	})
	return fill, err
}

func (l *live) changeIn(ctx context.Context, g *generation, name string, do func(banSet) (int, Refusals, error)) (Fill, Refusals, error) {
	e, err := g.manifest.dynamicSet(name)
	if err != nil {
		return Fill{}, nil, err
	}
	sets, err := l.banSets(ctx, g, e)
	if err != nil {
		return Fill{}, nil, err
	}
	fill := Fill{Set: e.Name, Capacity: e.Max}
	var refused Refusals
	for i, s := range sets {
		changed, not, err := do(s)
		if i > 0 {
			err = unlessAbsent(err)
		}
		if err != nil {
			return fill, nil, err
		}
		if i == 0 {
			fill.Changed, refused = changed, not
			if fill.Entries, err = s.count(ctx); err != nil {
				return fill, nil, err
			}
		}
	}
	return fill, refused, nil
}

// count is how many entries a dynamic set has.
func (l *live) count(ctx context.Context, g *generation, e setEntry) (int, error) {
	if e.Local && g.program == nil {
		own, err := hostfacts.OwnAddresses()
		return len(own), err
	}
	sets, err := l.banSets(ctx, g, e)
	if err != nil || len(sets) == 0 {
		return 0, err
	}
	return sets[0].count(ctx)
}

// dynamicSet finds the set that is meant.
func (m *manifest) dynamicSet(name string) (setEntry, error) {
	var names []string
	for _, s := range m.Sets {
		if s.Dynamic < 0 || s.Local {
			continue
		}
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	switch {
	case len(names) == 0:
		return setEntry{}, &SetError{"the policy that runs has no dynamic set",
			"give it one, `bans: {dynamic: true, max: 100000, timeout: 1h}` under sets, a rule that drops `from: $bans`, and apply"}
	case name != "":
		return setEntry{}, &SetError{fmt.Sprintf("the policy that runs has no dynamic set %q", name),
			"it has " + strings.Join(names, ", ")}
	case len(names) == 1:
		return m.dynamicSet(names[0])
	case slices.Contains(names, "bans"):
		return m.dynamicSet("bans")
	}
	return setEntry{}, &SetError{"the policy that runs has several dynamic sets",
		"say which with --set: " + strings.Join(names, ", ")}
}

// Blocked is an entry of a dynamic set.
type Blocked struct {
	Prefix  netip.Prefix `json:"prefix"`
	Set     string       `json:"set"`
	Expires *float64     `json:"expires_in,omitempty"` // seconds from now; absent: never
	Why     string       `json:"why,omitempty"`
	Origin  Origin       `json:"origin"`
	Rule    string       `json:"rule,omitempty"` // whose limit was exceeded, when Origin is Automatic
}

// Blocked lists the entries of a dynamic set, "" for all, by address.
func (in Instance) Blocked(ctx context.Context, set string) ([]Blocked, error) {
	l, err := in.open(ctx)
	if err != nil {
		return nil, err
	}
	defer l.close()
	g := l.generations[0]
	if set != "" {
		if _, err := g.manifest.dynamicSet(set); err != nil {
			return nil, err
		}
	}
	var all []Blocked
	for _, e := range g.manifest.Sets {
		if e.Dynamic < 0 || e.Local || set != "" && e.Name != set {
			continue
		}
		list, err := l.entries(ctx, g, e)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	slices.SortFunc(all, func(a, b Blocked) int {
		return cmp.Or(a.Prefix.Addr().Compare(b.Prefix.Addr()), a.Prefix.Bits()-b.Prefix.Bits())
	})
	return all, nil
}

// entries lists what a dynamic set of a generation holds, in any order.
func (l *live) entries(ctx context.Context, g *generation, e setEntry) ([]Blocked, error) {
	sets, err := l.banSets(ctx, g, e)
	if err != nil || len(sets) == 0 {
		return nil, err
	}
	return sets[0].list(ctx)
}
