package operate

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
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/policy"
)

// BlockOrder says whom to block.
type BlockOrder struct {
	Prefixes []string `json:"prefixes"`         // addresses, prefixes and ranges
	Set      string   `json:"set,omitempty"`    // the only dynamic set, or bans, when not said
	For      string   `json:"for,omitempty"`    // how long, as 15m or forever; the set's timeout when not said
	Why      string   `json:"why,omitempty"`    // of which 64 bytes are kept
	Force    bool     `json:"force,omitempty"`  // block even where who asks comes from
	Origin   string   `json:"origin,omitempty"` // the program that asks, as fail2ban; a person when not said

	Sessions []facts.Session `json:"-"` // of who asks, not to be blocked
	Unseen   bool            `json:"-"` // who asks may have sessions that this process cannot see
}

// UnblockOrder says whom to block no longer.
type UnblockOrder struct {
	Prefixes []string `json:"prefixes"` // exactly as they were blocked; all of an origin when there are none
	Set      string   `json:"set,omitempty"`
	Origin   string   `json:"origin,omitempty"` // the program whose entries these are: those of others stay
	Why      string   `json:"why,omitempty"`    // of entries of an origin only those with this reason
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
		return ban.Forever, nil
	}
	d, err := policy.ParseDuration(text)
	if err != nil || d < time.Second {
		return 0, &OrderError{fmt.Sprintf("for %q is not a time of at least a second", text), "write it as 90s, 15m, 1h, 7d, 1d12h, or forever"}
	}
	return d, nil
}

// Entry reads the prefixes of an address, a prefix or a range, none for an empty line. It returns the errors that refuse, unless
// that is nil, has for them.
func Entry(text []byte, refuse func(netip.Prefix) error) ([]netip.Prefix, error) {
	list, err := addrs.ParseLine(text)
	if err != nil || refuse == nil {
		return list, err
	}
	for _, p := range list {
		if err := refuse(p); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// NotOf refuses prefixes that have the client of a session in them.
func NotOf(sessions []facts.Session) func(netip.Prefix) error {
	return func(p netip.Prefix) error {
		for _, s := range sessions {
			if p.Contains(s.Client.Addr()) {
				return &OrderError{fmt.Sprintf("%s is where this SSH session comes from: not blocked", addrs.PrefixText(p)),
					"use --force if that is meant"}
			}
		}
		return nil
	}
}

// RefuseAllowlisted refuses prefixes that no program may ban, and those that others refuses.
func (h Host) RefuseAllowlisted(ctx context.Context, others func(netip.Prefix) error) (func(netip.Prefix) error, error) {
	w, err := h.RunningPolicy(ctx)
	if err != nil {
		return nil, err
	}
	list := allowlist.Now(w.Allowlist)
	return func(p netip.Prefix) error {
		if why := list.Why(p); why != "" {
			return &OrderError{fmt.Sprintf("%s %s: not blocked for a program", addrs.PrefixText(p), why), allowlistHint}
		}
		return others(p)
	}, nil
}

const (
	allowlistHint = "a person may block it: leave the origin out"
	forceHint     = `say "force": true if that is meant`
)

// NoLifeline refuses prefixes that have in them what this host cannot do without, and those that others refuses.
func NoLifeline(others func(netip.Prefix) error) func(netip.Prefix) error {
	list := allowlist.Now(nil)
	return func(p netip.Prefix) error {
		if err := others(p); err != nil {
			return err
		}
		if why := list.Why(p); why != "" {
			return &OrderError{fmt.Sprintf("%s %s: not blocked", addrs.PrefixText(p), why), "use --force if that is meant"}
		}
		return nil
	}
}

// EntryOf is Entry for something that must be one.
func EntryOf(text string, refuse func(netip.Prefix) error) ([]netip.Prefix, error) {
	list, err := Entry([]byte(text), refuse)
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
	origin, err := AskerOf(o.Origin)
	if err != nil {
		return Changed{}, err
	}
	prefixes, ranges, err := readAll(o.Prefixes, NotOf(o.Sessions))
	if err != nil {
		return Changed{}, err
	}
	var bans []ban.Ban
	for i, p := range prefixes {
		bans = append(bans, ban.Ban{Prefix: p, For: duration, Why: o.Why, Range: ranges[i], Origin: origin})
	}
	var refused []Problem
	total := len(bans)
	switch {
	case o.Force:
	case origin != ban.Manual:
		w, err := h.RunningPolicy(ctx)
		if err != nil {
			return Changed{}, err
		}
		bans, refused = withoutAllowlisted(bans, allowlist.Now(w.Allowlist), " for a program", allowlistHint)
	case o.Unseen:
		bans, refused = withoutAllowlisted(bans, allowlist.Now(nil), ", as the daemon may not see whether the session that asks comes from there", forceHint)
	default:
		bans, refused = withoutAllowlisted(bans, allowlist.Now(nil), "", forceHint)
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

// withoutAllowlisted takes out of bans those of prefixes that the allowlist has, and all of a range when one of its prefixes is.
func withoutAllowlisted(bans []ban.Ban, list *allowlist.List, why, hint string) (kept []ban.Ban, problems []Problem) {
	out, ranges := make([]bool, len(bans)), map[int]bool{}
	for i, b := range bans {
		if reason := list.Why(b.Prefix); reason != "" {
			problems = append(problems, Problem{Text: fmt.Sprintf("%s %s: not blocked%s", addrs.PrefixText(b.Prefix), reason, why), Hint: hint})
			out[i], ranges[b.Range] = true, b.Range != 0
		}
	}
	for i, b := range bans {
		if !out[i] && !ranges[b.Range] {
			kept = append(kept, b)
		}
	}
	return kept, problems
}

// OriginOf reads who asks for a ban: a person for "".
func OriginOf(text string) (ban.Origin, error) {
	o := ban.Origin(text)
	switch {
	case o == "":
		return ban.Manual, nil
	case !slices.Contains(ban.Origins, o):
		return "", &OrderError{fmt.Sprintf("origin %q is not known", text), fmt.Sprintf("the origins are %v", ban.Origins)}
	}
	return o, nil
}

// AskerOf is OriginOf for a new ban. Limits need nobody to ask for theirs.
func AskerOf(text string) (ban.Origin, error) {
	o, err := OriginOf(text)
	if err == nil && o == ban.Automatic {
		err = &OrderError{"origin automatic is for limits with ban", "name the program that asks, as fail2ban, or leave the origin out"}
	}
	return o, err
}

// OwnerOf reads whose entries an unblock removes: anybody's for "".
func OwnerOf(origin, why string) (of ban.Owner, err error) {
	if origin == "" && why != "" {
		return of, &OrderError{"why is of no use without an origin", "name the origin, as fail2ban"}
	}
	if origin != "" {
		of.Origin, err = OriginOf(origin)
	}
	of.Why = why
	return of, err
}

// Ended takes from the result of an UnblockOf for a program what it refused: an entry that has ended, or that belongs to somebody else
// by now, is no longer the program's to remove.
func Ended(of ban.Owner) func(control.Fill, error) (control.Fill, error) {
	return func(fill control.Fill, err error) (control.Fill, error) {
		if refused := (ban.Refusals)(nil); of.Origin != "" && errors.As(err, &refused) {
			err = nil
		}
		return fill, err
	}
}

// Owned are the prefixes of an owner's entries of a set.
func (h Host) Owned(ctx context.Context, set string, of ban.Owner) (list []netip.Prefix, err error) {
	err = h.EachBlocked(ctx, set, func(b ban.Blocked) {
		if of.Owns(b) {
			list = append(list, b.Prefix)
		}
	})
	return list, err
}

// UnblockAll removes prefixes from a set, at once. When any of them cannot be read, nothing is changed.
func (h Host) UnblockAll(ctx context.Context, o UnblockOrder) (Changed, error) {
	of, err := OwnerOf(o.Origin, o.Why)
	if err != nil {
		return Changed{}, err
	}
	var prefixes []netip.Prefix
	if of.Origin != "" && len(o.Prefixes) == 0 {
		prefixes, err = h.Owned(ctx, o.Set, of)
	} else {
		prefixes, _, err = readAll(o.Prefixes, nil)
	}
	if err != nil {
		return Changed{}, err
	}
	defer h.Bans.Sync()
	return changed(Ended(of)(h.UnblockOf(ctx, o.Set, of, prefixes)))
}

// readAll reads entries. Prefixes of one range have the same number in ranges, others 0.
func readAll(texts []string, refuse func(netip.Prefix) error) (prefixes []netip.Prefix, ranges []int, err error) {
	if len(texts) == 0 {
		return nil, nil, &OrderError{"there are no prefixes", "name addresses, prefixes or ranges"}
	}
	var errs []error
	for i, text := range texts {
		list, err := EntryOf(text, refuse)
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
	var refused ban.Refusals
	if err != nil && !errors.As(err, &refused) {
		return Changed{}, err
	}
	c.Refused = len(refused)
	for _, r := range refused[:min(len(refused), mostProblems)] {
		c.Problems = append(c.Problems, problem(r.Err))
	}
	if fill.Unsaved != nil {
		c.Problems = append(c.Problems, Problem{Text: fmt.Sprintf("it has effect, but does not last over a reboot: %v; `floodwall daemon` saves it when that is mended", fill.Unsaved)})
	}
	if w := fill.Warning(); w != "" {
		c.Problems = append(c.Problems, Problem{Text: w})
	}
	return c, nil
}
