// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Element is an entry of a dynamic set.
type Element struct {
	Prefix netip.Prefix
	// Timeout is the lifetime of the entry. In an insertion, 0 means the set's default timeout, and more than 50 years means no timeout. In a list,
	// Timeout is the time left, and 0 means no timeout.
	Timeout time.Duration
	Comment string
	// Anew says that an existing entry is removed and inserted again, in one transaction. It is needed for a new comment, because nftables cannot
	// change the comment of an existing entry.
	Anew bool
}

// never is the timeout that stands for no timeout. Before Linux 6.12 a set with a default timeout accepts no other value for this.
const never = 50 * 365 * day

// Overlap is a prefix that a set cannot hold because it overlaps the prefix With in the set.
type Overlap struct{ Prefix, With netip.Prefix }

// OverlapError lists the elements that were not inserted. A set of nftables cannot hold a prefix and another prefix inside it. All other elements of
// the same call were inserted.
type OverlapError struct {
	Set      string
	Overlaps []Overlap
}

func (e *OverlapError) Error() string {
	const shown = 5
	var list []string
	for _, o := range e.Overlaps[:min(shown, len(e.Overlaps))] {
		list = append(list, fmt.Sprintf("%s overlaps %s", o.Prefix, o.With))
	}
	if more := len(e.Overlaps) - shown; more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("set %s: %s", e.Set, strings.Join(list, ", "))
}

// Hint is the remedy.
func (e *OverlapError) Hint() string {
	return "remove the entry that is in the set first; a larger prefix covers the smaller one anyway"
}

// ElementError says why a set cannot hold an element. No element of the call was inserted.
type ElementError struct {
	Set    string
	Prefix netip.Prefix
	Cause  string
}

func (e *ElementError) Error() string { return fmt.Sprintf("set %s: %s: %s", e.Set, e.Prefix, e.Cause) }

// setKind describes the elements that a set can hold.
type setKind struct {
	name           string
	six            bool // true: IPv6; false: IPv4
	prefixes       bool // true: prefixes; false: single addresses
	timeouts       bool
	comments       bool
	longestComment int // in bytes
}

// check returns an error if the set cannot hold an element.
func (k setKind) check(e Element) error {
	cause := ""
	switch {
	case !e.Prefix.IsValid() || e.Prefix != e.Prefix.Masked():
		cause = "no prefix, or one with bits behind its length"
	case e.Prefix.Addr().Is6() != k.six:
		cause = "not of the family of the set"
	case !k.prefixes && !e.Prefix.IsSingleIP():
		cause = "the set holds single addresses only"
	case e.Timeout < 0:
		cause = "a timeout below 0"
	case e.Timeout > 0 && !k.timeouts:
		cause = "the set has no timeouts"
	default:
		return nil
	}
	return &ElementError{Set: k.name, Prefix: e.Prefix, Cause: cause}
}

// comment returns a comment in quotes, in a form that both tools accept. The tools have no escape for a quote, and end a comment at the end of the
// line.
func (k setKind) comment(text string) string {
	if text == "" || !k.comments {
		return ""
	}
	clean := strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		if r == '"' {
			return '\''
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	return ` comment "` + shorten(clean, k.longestComment) + `"`
}

// last keeps the last of the elements with the same prefix. It sorts the elements so that a prefix precedes the prefixes inside it.
func last(elements []Element) []Element {
	byPrefix := make(map[netip.Prefix]Element, len(elements))
	for _, e := range elements {
		byPrefix[e.Prefix] = e
	}
	list := make([]Element, 0, len(byPrefix))
	for _, e := range byPrefix {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b Element) int { return a.Prefix.Compare(b.Prefix) })
	return list
}

// apart returns the elements that overlap no earlier element and no prefix of the set. It returns the other elements as overlaps. The function last
// must have sorted the elements.
func apart(elements []Element, set []netip.Prefix) (fit []Element, overlaps []Overlap) {
	set = slices.Clone(set)
	slices.SortFunc(set, netip.Prefix.Compare)
	var widest netip.Prefix
	for _, e := range elements {
		if other, ok := overlapping(set, e.Prefix); ok {
			overlaps = append(overlaps, Overlap{e.Prefix, other})
		} else if widest.IsValid() && widest.Overlaps(e.Prefix) {
			overlaps = append(overlaps, Overlap{e.Prefix, widest})
		} else {
			fit, widest = append(fit, e), e.Prefix
		}
	}
	return fit, overlaps
}

// overlapping returns a prefix of a sorted set that overlaps p and is not equal to p. The prefixes of the set must not overlap each other.
func overlapping(set []netip.Prefix, p netip.Prefix) (netip.Prefix, bool) {
	at, found := slices.BinarySearchFunc(set, p, netip.Prefix.Compare)
	if found {
		return netip.Prefix{}, false
	}
	for _, i := range []int{at - 1, at} {
		if i >= 0 && i < len(set) && set[i].Overlaps(p) {
			return set[i], true
		}
	}
	return netip.Prefix{}, false
}
