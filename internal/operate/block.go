package operate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/addrs"
	"github.com/floodwall/floodwall/internal/control"
	"github.com/floodwall/floodwall/internal/hostfacts"
	"github.com/floodwall/floodwall/policy"
)

// BlockOrder says whom to block.
type BlockOrder struct {
	Prefixes []string `json:"prefixes"`        // addresses, prefixes and ranges
	Set      string   `json:"set,omitempty"`   // the only dynamic set, or bans, when not said
	For      string   `json:"for,omitempty"`   // how long, as 15m or forever; the set's timeout when not said
	Why      string   `json:"why,omitempty"`   // of which 64 bytes are kept
	Force    bool     `json:"force,omitempty"` // block even where who asks comes from

	Sessions []hostfacts.Session `json:"-"` // of who asks, not to be blocked
	Unseen   bool                `json:"-"` // who asks may have sessions that this process cannot see
}

// UnblockOrder says whom to block no longer.
type UnblockOrder struct {
	Prefixes []string `json:"prefixes"` // exactly as they were blocked
	Set      string   `json:"set,omitempty"`
}

// Changed says what became of a block or unblock.
type Changed struct {
	Set      string `json:"set"`
	Changed  int    `json:"changed"`
	Refused  int    `json:"refused"`
	Entries  int    `json:"entries"`
	Capacity int    `json:"capacity"`

	Problems []Problem `json:"problems,omitempty"` // those of the first that were refused
}

// mostProblems is how many refused entries are told of one by one.
const mostProblems = 20

// BanTime reads how long to block, written as times in the policy are; 0 for "", the set's timeout.
func BanTime(text string) (time.Duration, error) {
	switch text {
	case "":
		return 0, nil
	case "forever":
		return control.Forever, nil
	}
	d, err := policy.ParseDuration(text)
	if err != nil || d < time.Second {
		return 0, &OrderError{fmt.Sprintf("for %q is not a time of at least a second", text), "write it as 90s, 15m, 1h, 7d, 1d12h, or forever"}
	}
	return d, nil
}

// Entry reads the prefixes of an address, a prefix or a range, none for an empty line. It refuses those that have the client of a
// session in them.
func Entry(text []byte, sessions []hostfacts.Session) ([]netip.Prefix, error) {
	list, err := addrs.ParseLine(text)
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		for _, s := range sessions {
			if p.Contains(s.Client.Addr()) {
				return nil, &OrderError{fmt.Sprintf("%s is where this SSH session comes from: not blocked", addrs.PrefixText(p)),
					"use --force if that is meant"}
			}
		}
	}
	return list, nil
}

// EntryOf is Entry for something that must be one.
func EntryOf(text string, sessions []hostfacts.Session) ([]netip.Prefix, error) {
	list, err := Entry([]byte(text), sessions)
	if err == nil && list == nil {
		err = fmt.Errorf("not an address, prefix or range: %q", text)
	}
	return list, err
}

// BlockAll enters prefixes into a set, at once. When any of them cannot be read, nothing is changed. Where sessions are unseen, it
// refuses prefixes that have in them what this host cannot do without, and enters the others.
func (h Host) BlockAll(ctx context.Context, o BlockOrder) (Changed, error) {
	duration, err := BanTime(o.For)
	if err != nil {
		return Changed{}, err
	}
	if o.Force {
		o.Sessions = nil
	}
	prefixes, ranges, err := readAll(o.Prefixes, o.Sessions)
	if err != nil {
		return Changed{}, err
	}
	var bans []control.Ban
	for i, p := range prefixes {
		bans = append(bans, control.Ban{Prefix: p, For: duration, Why: o.Why, Range: ranges[i]})
	}
	var refused []Problem
	total := len(bans)
	if o.Unseen && !o.Force {
		bans, refused = spare(bans, hostfacts.Lifelines())
	}
	c := Changed{Set: o.Set}
	if len(bans) > 0 {
		defer h.Bans.Sync()
		c, err = changed(h.Block(ctx, o.Set, bans))
	}
	c.Refused += total - len(bans)
	c.Problems = append(c.Problems, refused[:min(len(refused), mostProblems)]...)
	return c, err
}

// spare takes out of bans those with a lifeline in them, and all of a range when one of its prefixes has one.
func spare(bans []control.Ban, lifelines []hostfacts.Lifeline) (kept []control.Ban, problems []Problem) {
	spared, ranges := make([]bool, len(bans)), map[int]bool{}
	for i, b := range bans {
		at := slices.IndexFunc(lifelines, func(l hostfacts.Lifeline) bool {
			return b.Prefix.Bits() <= l.Prefix.Bits() && b.Prefix.Contains(l.Prefix.Addr())
		})
		if at < 0 {
			continue
		}
		what := "a link, gateway, resolver or session of this host"
		if lifelines[at].Own {
			what = "an address of this host"
		}
		problems = append(problems, Problem{
			Text: fmt.Sprintf("%s has in it %s, %s: not blocked, as the daemon may not see whether the session that asks comes from there",
				addrs.PrefixText(b.Prefix), lifelines[at].Prefix, what),
			Hint: `say "force": true if that is meant`,
		})
		spared[i], ranges[b.Range] = true, b.Range != 0
	}
	for i, b := range bans {
		if !spared[i] && !ranges[b.Range] {
			kept = append(kept, b)
		}
	}
	return kept, problems
}

// UnblockAll removes prefixes from a set, at once. When any of them cannot be read, nothing is changed.
func (h Host) UnblockAll(ctx context.Context, o UnblockOrder) (Changed, error) {
	prefixes, _, err := readAll(o.Prefixes, nil)
	if err != nil {
		return Changed{}, err
	}
	defer h.Bans.Sync()
	return changed(h.Unblock(ctx, o.Set, prefixes))
}

// readAll reads entries. Prefixes of one range have the same number in ranges, others 0.
func readAll(texts []string, sessions []hostfacts.Session) (prefixes []netip.Prefix, ranges []int, err error) {
	if len(texts) == 0 {
		return nil, nil, &OrderError{"there are no prefixes", "name addresses, prefixes or ranges"}
	}
	var errs []error
	for i, text := range texts {
		list, err := EntryOf(text, sessions)
		if err != nil {
			errs = append(errs, err)
		}
		for _, p := range list {
			number := 0
			if len(list) > 1 {
				number = i + 1
			}
			prefixes, ranges = append(prefixes, p), append(ranges, number)
		}
	}
	if len(errs) > 0 {
		return nil, nil, &EntriesError{errs}
	}
	return prefixes, ranges, nil
}

// EntriesError is all entries of an order that cannot be read, or must not be changed.
type EntriesError struct{ Errs []error }

func (e *EntriesError) Error() string { return errors.Join(e.Errs...).Error() }

// Unwrap is each of them.
func (e *EntriesError) Unwrap() []error { return e.Errs }

// changed is the result of a change.
func changed(fill control.Fill, err error) (Changed, error) {
	c := Changed{Set: fill.Set, Changed: fill.Changed, Entries: fill.Entries, Capacity: fill.Capacity}
	var refused control.Refusals
	if err != nil && !errors.As(err, &refused) {
		return Changed{}, err
	}
	c.Refused = len(refused)
	for _, r := range refused[:min(len(refused), mostProblems)] {
		c.Problems = append(c.Problems, problem(r.Err))
	}
	if fill.Unsaved != nil {
		c.Problems = append(c.Problems, Problem{Text: fmt.Sprintf("it has effect, but does not last over a reboot: %v", fill.Unsaved)})
	}
	if w := fill.Warning(); w != "" {
		c.Problems = append(c.Problems, Problem{Text: w})
	}
	return c, nil
}
