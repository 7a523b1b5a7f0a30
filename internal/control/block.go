package control

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/addrs"
	"github.com/floodwall/floodwall/internal/datapath"
)

// Forever as a Ban's duration says that it does not expire.
const Forever = time.Duration(math.MaxInt64)

// Ban is an entry to put into a dynamic set.
type Ban struct {
	Prefix netip.Prefix
	For    time.Duration // 0: the set's timeout; Forever: none
	Why    string
	Range  int // bans behind each other with the same number, not 0, are one range: all are entered, or none
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
	now := monotonic()
	fits := fits{bans: bans, now: now}
	return in.change(ctx, set, len(bans), func(s *addrs.DynamicSet, e setEntry, i int) error {
		b := bans[i]
		if err := fits.check(s, e, i); err != nil {
			return err
		}
		entry := addrs.Entry{Prefix: b.Prefix.Masked(), Expiry: expiry(now, b.For, e.Timeout), Why: b.Why}
		if err := s.Insert(entry, now); err != nil {
			return blockError(e, b.Prefix, err)
		}
		fits.entered(b.Prefix.Masked())
		return nil
	})
}

// Unblock removes entries of exactly these prefixes. Those that there were not are returned as Refusals.
func (in Instance) Unblock(ctx context.Context, set string, prefixes []netip.Prefix) (Fill, error) {
	now := monotonic()
	return in.change(ctx, set, len(prefixes), func(s *addrs.DynamicSet, e setEntry, i int) error {
		p := prefixes[i].Masked()
		switch {
		case s.Delete(p, now):
			return nil
		case s.Contains(p.Addr(), now):
			return &SetError{fmt.Sprintf("%s is not blocked by an entry of its own, but within another of set %q", text(p), e.Name),
				"`floodwall blocked` lists the entries; an entry is removed as a whole"}
		}
		return fmt.Errorf("%s is not blocked in set %q", text(p), e.Name)
	})
}

// text writes a prefix as people do: one address without its length.
func text(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

func blockError(e setEntry, p netip.Prefix, err error) error {
	switch {
	case errors.Is(err, addrs.ErrFull):
		return &SetError{fmt.Sprintf("set %q is full: %d entries, and %s did not fit", e.Name, e.Max, text(p)),
			"raise its max in the policy and apply; or unblock some, or give them shorter times"}
	case errors.Is(err, addrs.ErrLengths):
		return &SetError{fmt.Sprintf("set %q has 8 different prefix lengths already, and %s is of another", e.Name, text(p)),
			"use one of the lengths that are in use (`floodwall blocked` lists them)"}
	}
	return fmt.Errorf("set %q: %s: %w", e.Name, text(p), err)
}

// expiry is the second of the monotonic clock at which a ban ends, 0 for never.
func expiry(now uint32, of, timeout time.Duration) uint32 {
	if of == 0 {
		of = timeout
	}
	if of == 0 || of == Forever {
		return 0
	}
	seconds := uint64(of/time.Second) + 1 // the clock may be just short of its next second
	return uint32(min(uint64(now)+seconds, math.MaxUint32))
}

// edit changes entry i of a call in one set.
type edit func(s *addrs.DynamicSet, e setEntry, i int) error

// change makes n edits to a set of every generation that runs, under the lock.
func (in Instance) change(ctx context.Context, name string, n int, do edit) (fill Fill, err error) {
	state, err := datapath.OpenState(in.Dir, false)
	if err != nil {
		return Fill{}, err
	}
	unlock, err := lock(ctx, state)
	if err != nil {
		return Fill{}, err
	}
	defer unlock()
	l, err := in.open()
	if err != nil {
		return Fill{}, err
	}
	defer l.close()
	// The newest comes last, and its answer counts: an older one may not have the set, or the entries.
	for i := len(l.generations) - 1; i >= 0; i-- {
		fill, err = changeIn(l.generations[i], l.manifests[i], name, n, do)
	}
	return fill, err
}

func changeIn(g *datapath.Generation, m *manifest, name string, n int, do edit) (Fill, error) {
	e, err := m.dynamicSet(name)
	if err != nil {
		return Fill{}, err
	}
	dynamic, err := openDynamic(g)
	if err != nil {
		return Fill{}, err
	}
	set := dynamic.Sets[e.Dynamic]
	var refused Refusals
	changed := 0
	for i := range n {
		err := do(set, e, i)
		switch {
		case err == nil:
			changed++
		case !errors.Is(err, errOfRange):
			refused = append(refused, Refusal{i, err})
		}
	}
	fill := Fill{Set: e.Name, Changed: changed, Entries: set.Count(monotonic()), Capacity: e.Max}
	if refused != nil {
		return fill, refused
	}
	return fill, nil
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
}

// Blocked lists the entries of a dynamic set, "" for all, by address.
func (in Instance) Blocked(set string) ([]Blocked, error) {
	l, err := in.open()
	if err != nil {
		return nil, err
	}
	defer l.close()
	m := l.manifests[0]
	if set != "" {
		if _, err := m.dynamicSet(set); err != nil {
			return nil, err
		}
	}
	dynamic, err := openDynamic(l.generations[0])
	if err != nil || dynamic == nil {
		return nil, err
	}
	var list []Blocked
	now := monotonicTime()
	for _, e := range m.Sets {
		if e.Dynamic < 0 || e.Local || set != "" && e.Name != set {
			continue
		}
		for entry := range dynamic.Sets[e.Dynamic].All(uint32(now / time.Second)) {
			b := Blocked{Prefix: entry.Prefix, Set: e.Name, Why: entry.Why}
			if entry.Expiry != 0 {
				left := (time.Duration(entry.Expiry)*time.Second - now).Seconds()
				b.Expires = &left
			}
			list = append(list, b)
		}
	}
	slices.SortFunc(list, func(a, b Blocked) int {
		if c := a.Prefix.Addr().Compare(b.Prefix.Addr()); c != 0 {
			return c
		}
		return a.Prefix.Bits() - b.Prefix.Bits()
	})
	return list, nil
}
