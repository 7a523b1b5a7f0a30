// SPDX-License-Identifier: Apache-2.0

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

// BlockOrder says which prefixes to block, and how.
type BlockOrder struct {
	Prefixes []string `json:"prefixes"`         // addresses, prefixes and ranges
	Set      string   `json:"set,omitempty"`    // "": the only dynamic set, or the set `bans`
	For      string   `json:"for,omitempty"`    // how long, such as 15m or forever; "": the set's timeout
	Why      string   `json:"why,omitempty"`    // the reason, of which the first 64 bytes are kept
	Force    bool     `json:"force,omitempty"`  // block even the client's own address
	Origin   string   `json:"origin,omitempty"` // the program that orders the bans, such as fail2ban; "": a person

	Sessions []facts.Session `json:"-"` // the client's sessions, which must not be blocked
	Unseen   bool            `json:"-"` // the client may have sessions that this process cannot see
}

// UnblockOrder says which prefixes to unblock.
type UnblockOrder struct {
	Prefixes []string `json:"prefixes"` // exactly as they were blocked; none: all entries of the origin
	Set      string   `json:"set,omitempty"`
	Origin   string   `json:"origin,omitempty"` // the program that owns the entries; entries with other owners stay
	Why      string   `json:"why,omitempty"`    // if not "", remove only the origin's entries with this reason
}

// Changed is the result of a block or unblock.
type Changed struct {
	Set      string `json:"set"`
	Changed  int    `json:"changed"`
	Refused  int    `json:"refused"`
	Entries  int    `json:"entries"`
	Capacity int    `json:"capacity"`

	Problems []Problem `json:"problems,omitempty"` // the problems of the first refused entries
}

// mostProblems is how many refused entries are listed.
const mostProblems = 20

// BanTime parses a duration of a ban in the notation of the policy. It returns 0 for "", which means the set's timeout.
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

// Entry parses an address, a prefix or a range into prefixes. It returns none for an empty line. If refuse is not nil and returns an error for a
// prefix, Entry returns that error.
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

// notOf returns a function that refuses prefixes that contain a client's address of these sessions.
func notOf(sessions []facts.Session) func(netip.Prefix) error {
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

const (
	allowlistHint = "a person may block it: leave the origin out"
	forceHint     = `say "force": true if that is meant`
)

// May returns a function that checks whether a ban with this origin may contain a prefix. It refuses addresses of the clients of sessions, and
// addresses that this host depends on. For a program as origin, it also refuses addresses that the policy never bans. Its error ends with why, and
// has the hint for a person.
func (h Host) May(ctx context.Context, origin ban.Origin, sessions []facts.Session, why, hint string) (func(netip.Prefix) error, error) {
	var never []netip.Prefix
	if origin != ban.Manual {
		w, err := h.RunningPolicy(ctx)
		if err != nil {
			return nil, err
		}
		never, why, hint = w.Allowlist, " for a program", allowlistHint
	}
	list, ofSession := allowlist.Now(never), notOf(sessions)
	return func(p netip.Prefix) error {
		reason, err := list.Why(p), ofSession(p)
		if reason != "" && (err == nil || origin != ban.Manual) {
			err = &OrderError{fmt.Sprintf("%s %s: not blocked%s", addrs.PrefixText(p), reason, why), hint}
		}
		return err
	}, nil
}

// EntryOf parses text as Entry does, but returns an error for empty text.
func EntryOf(text string, refuse func(netip.Prefix) error) ([]netip.Prefix, error) {
	list, err := Entry([]byte(text), refuse)
	if err == nil && list == nil {
		err = fmt.Errorf("not an address, prefix or range: %q", text)
	}
	return list, err
}

// BlockAll enters prefixes into a set in one step. If one of them cannot be parsed, nothing is changed. Prefixes that May refuses are not entered;
// the other prefixes are entered.
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
	prefixes, ranges, err := readAll(o.Prefixes, notOf(o.Sessions))
	if err != nil {
		return Changed{}, err
	}
	var bans []ban.Ban
	for i, p := range prefixes {
		bans = append(bans, ban.Ban{Prefix: p, Until: ban.After(duration), Why: o.Why, Range: ranges[i], Origin: origin})
	}
	var refused []Problem
	total := len(bans)
	if !o.Force {
		why := ""
		if o.Unseen {
			why = ", as the daemon may not see whether the session that asks comes from there"
		}
		may, err := h.May(ctx, origin, nil, why, forceHint)
		if err != nil {
			return Changed{}, err
		}
		bans, refused = allowed(bans, may)
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

// allowed returns the bans for which may returns no error. If may refuses one prefix of a range, allowed drops all bans of the range.
func allowed(bans []ban.Ban, may func(netip.Prefix) error) (kept []ban.Ban, problems []Problem) {
	out, ranges := make([]bool, len(bans)), map[int]bool{}
	for i, b := range bans {
		if err := may(b.Prefix); err != nil {
			problems = append(problems, problem(err))
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

// OriginOf parses the origin of a ban; "" means a person.
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

// AskerOf parses the origin of an ordered ban as OriginOf does. It refuses the origin of limits, because no client orders such bans.
func AskerOf(text string) (ban.Origin, error) {
	o, err := OriginOf(text)
	if err == nil && o == ban.Automatic {
		err = &OrderError{"origin automatic is for limits with ban", "name the program that asks, as fail2ban, or leave the origin out"}
	}
	return o, err
}

// OwnerOf parses the owner whose entries an unblock removes; "" means all entries.
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

// Ended removes refusals from the result of an UnblockOf by a program. A program has no error to report when an entry has ended or has another owner
// by now.
func Ended(of ban.Owner) func(control.Fill, error) (control.Fill, error) {
	return func(fill control.Fill, err error) (control.Fill, error) {
		if refused := (ban.Refusals)(nil); of.Origin != "" && errors.As(err, &refused) {
			err = nil
		}
		return fill, err
	}
}

// Owned returns the prefixes of a set's entries that belong to an owner.
func (h Host) Owned(ctx context.Context, set string, of ban.Owner) (list []netip.Prefix, err error) {
	err = h.EachBlocked(ctx, set, func(b ban.Ban) {
		if of.Owns(b) {
			list = append(list, b.Prefix)
		}
	})
	return list, err
}

// UnblockAll removes prefixes from a set in one step. If one of them cannot be read, nothing is changed.
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

// readAll parses entries. All prefixes of the same range have the same number in ranges. Other prefixes have 0.
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

// EntriesError contains an error for each entry of an order that cannot be parsed or must not be changed.
type EntriesError struct{ Errs []error }

func (e *EntriesError) Error() string { return errors.Join(e.Errs...).Error() }

// Unwrap returns the errors.
func (e *EntriesError) Unwrap() []error { return e.Errs }

// changed converts the result of a change to a Changed.
func changed(fill control.Fill, err error) (Changed, error) {
	c := Changed{Set: fill.Set, Changed: len(fill.Changed), Entries: fill.Entries, Capacity: fill.Capacity}
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
